#pragma once
// Draws a part of a trace as SVG: time from left to right; a row of steps, then one row per thread with its chunks and
// waits. A pure function of its input.

#include <string>
#include <vector>

#include "session/trace_file.h"

namespace forge::tools {

struct TracePicture {
  std::string title, subtitle;
  double begin_us = 0, end_us = 0;          ///< the drawn interval
  std::vector<std::string> threads;         ///< names of the rows, from thread 0 on
  std::vector<session::TraceEvent> events;  ///< steps of thread 0; chunks and waits of all; other events are ignored
};

[[nodiscard]] std::string trace_svg(const TracePicture& picture);

}  // namespace forge::tools
