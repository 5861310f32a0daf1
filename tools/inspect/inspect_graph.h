#pragma once
// forge-inspect PLAN --graph-svg FILE: a variant's steps, the values between them and their places, drawn by Graphviz.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace forge::tools {

struct GraphChoice {
  std::optional<std::string> variant;  ///< none: the first
  std::optional<std::string> layer;    ///< a number, or "all"; none: the one in the middle
};

/// Reads `plan` and writes the picture to `svg`. Returns one line for people. Errors: those of check_output_path before
/// anything is read, of read_plan_to_draw, program_to_draw and variant_to_draw; kUsage for a layer that is not there;
/// kIo when there is no Graphviz, naming its package, and when it fails.
std::string write_graph_svg(const std::filesystem::path& plan, const GraphChoice& choice,
                            const std::filesystem::path& svg);

}  // namespace forge::tools
