#include "tools/inspect/inspect_graph.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "codegen/program_output.h"
#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"
#include "support/os/unique_fd.h"
#include "tools/cli/options.h"
#include "tools/viz/plan_dot.h"
#include "tools/viz/plan_to_draw.h"

namespace forge::tools {
namespace {

/// The layer to draw: `wanted`, or the middle one; kAllLayers for "all".
std::int32_t layer_of(const plan::VariantT& variant, const std::optional<std::string>& wanted) {
  std::int32_t last = -1;
  for (const auto& step : variant.steps) last = std::max(last, step->layer);
  if (wanted && *wanted == "all") return kAllLayers;
  if (!wanted) return last < 0 ? kAllLayers : last / 2 + last % 2;
  if (last < 0) throw Error(ErrorCode::kUsage, "the plan's steps have no layers", {}, "give --layer all");
  return static_cast<std::int32_t>(parse_integers("--layer", *wanted, 0, last).front());
}

/// Runs Graphviz's dot on the DOT text and returns the SVG. Errors: kIo.
std::string draw(const std::string& text) {
  const UniqueFd file(::memfd_create("forge-graph", 0));  // no MFD_CLOEXEC: dot opens it through /proc/self/fd
  const int failed = file ? write_all(file.get(), std::as_bytes(std::span(text))) : errno;
  if (failed != 0) throw Error(ErrorCode::kIo, "cannot pass the graph to dot", std::strerror(failed));
  const std::array<std::string, 3> command{"dot", "-Tsvg", fmt::format("/proc/self/fd/{}", file.get())};
  auto output = codegen::output_of(command);
  check_interrupt();
  if (!output.found)
    throw Error(ErrorCode::kIo, "cannot draw the graph", "the program 'dot' is not in $PATH",
                "install Graphviz (Debian's package graphviz)");
  if (!output.text || output.text->find("<svg") == std::string::npos)
    throw Error(ErrorCode::kIo, "cannot draw the graph", "Graphviz's dot failed",
                "to see why, run forge-compile MODEL --dump-dot DIR, then dot -Tsvg on a file there");
  return std::move(*output.text);
}

}  // namespace

std::string write_graph_svg(const std::filesystem::path& plan_path, const GraphChoice& choice,
                            const std::filesystem::path& svg) {
  check_output_path(svg, {plan_path});
  const auto plan = read_plan_to_draw(plan_path, "--graph-svg");
  const auto& variant = variant_to_draw(program_to_draw(plan), choice.variant);
  const auto layer = layer_of(variant, choice.layer);
  progress("drawing the graph");
  const auto image = draw(plan_dot(variant, layer));
  end_progress();
  write_file(svg, image);
  return fmt::format("{} of {} written to {}",
                     layer == kAllLayers ? std::string("all layers") : fmt::format("layer {}", layer), variant.name,
                     printable(svg.native(), 200));
}

}  // namespace forge::tools
