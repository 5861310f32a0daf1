#pragma once
// forge-inspect PLAN --graph-svg FILE: draws a variant's steps and the values between them, with Graphviz.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace forge::tools {

struct GraphChoice {
  std::optional<std::string> variant;  ///< name; empty: the first
  std::optional<std::string> layer;    ///< a number, or "all"; empty: the middle one
};

/// Reads `plan` and writes the drawing to `svg`. Returns a note for the user. Errors: those of check_output_path,
/// before anything is read; those of read_plan_to_draw, program_to_draw and variant_to_draw; kUsage for a layer that
/// does not exist; kIo if Graphviz is not installed or fails.
std::string write_graph_svg(const std::filesystem::path& plan, const GraphChoice& choice,
                            const std::filesystem::path& svg);

}  // namespace forge::tools
