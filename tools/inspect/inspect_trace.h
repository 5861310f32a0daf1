#pragma once
// forge-inspect trace FILE --svg OUT: a picture of what --profile-trace wrote.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tools/viz/trace_svg.h"

namespace forge::tools {

struct TraceChoice {
  std::optional<std::int64_t> forward;  ///< counted from 1; none: the last one
  std::optional<std::int64_t> layer;    ///< none: the one in the middle of the forward's
  bool whole = false;                   ///< all steps of the forward instead of a layer's
};

/// Reads the trace and picks what to draw, of its first process. Errors: kIo; kUsage for what is no trace of forge's,
/// and for a forward or layer that is not in it.
[[nodiscard]] TracePicture trace_picture(const std::filesystem::path& trace, const TraceChoice& choice);

/// Writes the picture to `svg`. Returns one line for people. Errors: those of check_output_path before anything is
/// read, trace_picture's, kIo.
std::string write_trace_svg(const std::filesystem::path& trace, const TraceChoice& choice,
                            const std::filesystem::path& svg);

}  // namespace forge::tools
