#pragma once
// A part of a trace as a picture: time from left to right, a row of steps, then a row a thread with its chunks and
// waits. A pure function from numbers to SVG text.

#include <string>
#include <vector>

#include "session/trace_file.h"

namespace forge::tools {

struct TracePicture {
  std::string title, subtitle;
  double begin_us = 0, end_us = 0;          ///< what is drawn
  std::vector<std::string> threads;         ///< names of the tracks, from thread 0 on
  std::vector<session::TraceEvent> events;  ///< steps of thread 0; chunks and waits of all; others are not drawn
};

[[nodiscard]] std::string trace_svg(const TracePicture& picture);

}  // namespace forge::tools
