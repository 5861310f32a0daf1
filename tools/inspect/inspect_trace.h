#pragma once
// forge-inspect trace FILE --svg OUT: draws a part of a trace written by --profile-trace.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tools/viz/trace_svg.h"

namespace forge::tools {

struct TraceChoice {
  std::optional<std::int64_t> forward;  ///< number of the forward pass, from 1; empty: the last one
  std::optional<std::int64_t> layer;    ///< empty: the middle layer
  bool whole = false;                   ///< draw all steps of the forward pass instead of one layer's
};

/// Reads the trace and selects what to draw from its first process. Errors: kIo; kUsage if the file is not a trace by
/// forge, or for a forward pass or layer that it does not have.
[[nodiscard]] TracePicture trace_picture(const std::filesystem::path& trace, const TraceChoice& choice);

/// Writes the drawing to `svg`. Returns a note for the user. Errors: those of check_output_path, before anything is
/// read; those of trace_picture; kIo.
std::string write_trace_svg(const std::filesystem::path& trace, const TraceChoice& choice,
                            const std::filesystem::path& svg);

}  // namespace forge::tools
