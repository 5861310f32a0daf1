#include "tools/inspect/inspect_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "support/error.h"
#include "support/os/atomic_file.h"
#include "tools/compile/compile_report.h"
#include "tools/viz/plan_to_draw.h"

namespace forge::tools {
namespace {

constexpr std::size_t kAliasesShown = 8;  ///< values listed per buffer; the residual stream has two per layer

std::string name_of(const plan::BufferValueT& value) {
  return fmt::format("%{} {}", value.number, printable(value.text));
}

ArenaBox box_of(const plan::VariantT& variant, const plan::BufferT& buffer) {
  const auto& maker = *variant.steps[buffer.first];
  ArenaBox box{.kind = buffer.values.empty()       ? ArenaBox::Kind::kScratch
                       : buffer.values.size() == 1 ? ArenaBox::Kind::kValue
                                                   : ArenaBox::Kind::kReused,
               .name = "scratch",
               .details = printable(maker.label),
               .offset = buffer.offset,
               .bytes = buffer.bytes,
               .first = static_cast<std::int32_t>(buffer.first),
               .last = static_cast<std::int32_t>(buffer.last)};
  if (buffer.values.empty()) return box;
  box.name = name_of(*buffer.values.front());
  box.details = "made by " + box.details;
  if (maker.layer >= 0) box.details += fmt::format(", layer {}", maker.layer);
  const auto shown = std::min(buffer.values.size() - 1, kAliasesShown);
  for (std::size_t i = 1; i <= shown; ++i) box.details += "\nthen " + name_of(*buffer.values[i]);
  if (shown + 1 < buffer.values.size()) box.details += fmt::format("\nand {} more", buffer.values.size() - 1 - shown);
  return box;
}

}  // namespace

ArenaPicture arena_picture(const plan::PlanT& plan, const std::optional<std::string>& name) {
  const auto& program = program_to_draw(plan);
  const auto& variant = variant_to_draw(program, name);
  const auto scratch = std::ranges::count_if(variant.buffers, [](const auto& one) { return one->values.empty(); });
  ArenaPicture picture{
      .title = fmt::format("Arena of {}, {} for {}", plan.model->name, variant.name, program.target),
      .subtitle = fmt::format("{} steps, {} buffers; {} bytes, {:.3f} of the lower bound; the arena of all variants is "
                              "{} bytes",
                              variant.steps.size(), static_cast<std::ptrdiff_t>(variant.buffers.size()) - scratch,
                              variant.arena_bytes, arena_ratio(variant.arena_bytes, variant.arena_bound_bytes),
                              program.arena_bytes),
      .peak_bytes = variant.arena_bytes,
      .bound_bytes = variant.arena_bound_bytes};
  for (const auto& step : variant.steps) picture.layers.push_back(step->layer);
  for (const auto& buffer : variant.buffers) picture.boxes.push_back(box_of(variant, *buffer));
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
