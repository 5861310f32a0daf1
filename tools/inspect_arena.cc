#include "tools/inspect_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "support/error.h"
#include "tools/atomic_file.h"
#include "tools/compile_report.h"
#include "tools/inspect_schedule.h"

namespace forge::tools {
namespace {

constexpr std::size_t kAliasesShown = 8;  ///< a residual stream has two a layer

/// "%12 add", and which result where there are several.
std::string name_of(const ir::Graph& graph, ir::Value value) {
  return fmt::format("%{} {}{}", value.node, ir::op_def(graph.op(value.node)).name,
                     graph.results(value.node).size() > 1 ? fmt::format(" [{}]", value.result) : "");
}

ArenaBox box_of(const ir::Graph& graph, const passes::Variant& variant, const passes::Buffer& buffer) {
  const auto& maker = variant.steps[static_cast<std::size_t>(buffer.first)];
  ArenaBox box{.kind = buffer.aliases.empty() ? ArenaBox::Kind::kValue : ArenaBox::Kind::kReused,
               .name = name_of(graph, buffer.value),
               .details = graph.type(buffer.value).text(),
               .offset = buffer.offset,
               .bytes = buffer.bytes,
               .first = buffer.first,
               .last = buffer.last};
  if (maker.layer >= 0) box.details += fmt::format(", layer {}", maker.layer);
  box.details += "\nmade by " + maker.kernel.kernel;
  const auto shown = std::min(buffer.aliases.size(), kAliasesShown);
  for (std::size_t i = 0; i < shown; ++i) box.details += "\nthen " + name_of(graph, buffer.aliases[i]);
  if (shown < buffer.aliases.size()) box.details += fmt::format("\nand {} more", buffer.aliases.size() - shown);
  return box;
}

}  // namespace

ArenaPicture arena_picture(const plan::PlanT& plan, const std::optional<std::string>& name) {
  const auto programs = scheduled(plan);
  const auto& [program, variant] = variant_to_draw(programs, name);
  ArenaPicture picture{
      .title = fmt::format("Arena of {}, {} for {}", plan.model->name, variant.name, program_to_draw(plan).target),
      .subtitle = fmt::format("{} steps, {} buffers; {} bytes, {:.3f} of the lower bound; the arena of all variants is "
                              "{} bytes",
                              variant.steps.size(), variant.buffers.size(), variant.arena_bytes,
                              arena_ratio(variant.arena_bytes, variant.arena_bound_bytes),
                              std::ranges::max(programs, {}, &passes::Program::arena_bytes).arena_bytes),
      .peak_bytes = variant.arena_bytes,
      .bound_bytes = variant.arena_bound_bytes};
  for (const auto& buffer : variant.buffers) picture.boxes.push_back(box_of(program.graph, variant, buffer));
  for (std::size_t i = 0; i < variant.steps.size(); ++i) {
    const auto& step = variant.steps[i];
    const auto at = static_cast<std::int32_t>(i);
    picture.layers.push_back(step.layer);
    if (step.kernel.scratch_bytes > 0)
      picture.boxes.push_back({.kind = ArenaBox::Kind::kScratch,
                               .name = "scratch",
                               .details = step.kernel.kernel,
                               .offset = step.scratch_offset,
                               .bytes = step.kernel.scratch_bytes,
                               .first = at,
                               .last = at});
  }
  return picture;
}

std::string write_arena_svg(const std::filesystem::path& path, const std::optional<std::string>& variant,
                            const std::filesystem::path& svg) {
  check_output_path(svg, {path});
  const auto plan = read_plan_to_draw(path, "--arena-svg");
  const auto picture = arena_picture(plan, variant);
  write_file(svg, arena_svg(picture));
  return fmt::format("{} boxes of {} steps written to {}", picture.boxes.size(), picture.layers.size(),
                     printable(svg.native(), 200));
}

}  // namespace forge::tools
