#include "tools/compile/compile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "support/os/console.h"

namespace forge::tools {

std::size_t steps_a_layer(const plan::VariantT& variant) {
  std::map<std::int32_t, std::size_t> counts;
  for (const auto& step : variant.steps)
    if (step && step->layer >= 0) ++counts[step->layer];
  std::map<std::size_t, std::size_t> layers;
  for (const auto& [layer, count] : counts) ++layers[count];
  const auto most = std::ranges::max_element(layers, {}, [](const auto& entry) { return entry.second; });
  return most == layers.end() ? 0 : most->first;
}

std::int64_t weight_bytes_read(const plan::VariantT& variant) {
  std::int64_t bytes = 0;
  for (const auto& step : variant.steps)
    if (step) bytes += step->weight_bytes;
  return bytes;
}

double arena_ratio(std::int64_t arena_bytes, std::int64_t bound_bytes) {
  return bound_bytes <= 0 ? 1.0 : static_cast<double>(arena_bytes) / static_cast<double>(bound_bytes);
}

void note_compile_report(const codegen::CompileReport& report, bool every_pass) {
  if (every_pass) {
    for (const auto& pass : report.passes)
      note(fmt::format("  {:34} {:9} {:5} -> {:5} nodes {:8.2f} ms", pass.name,
                       pass.skipped   ? "skipped"
                       : pass.changed ? "changed"
                                      : "-",
                       pass.nodes_before, pass.nodes_after, pass.milliseconds));
    for (const auto& line : report.notes) note("  " + line);
  } else {
    for (const auto& pass : report.passes)
      if (pass.skipped) note(fmt::format("  {} was skipped", pass.name));
  }
}

void note_plan(const plan::PlanT& plan, const std::string& where, bool built, double seconds) {
  for (const auto& program : plan.programs) {
    if (!program) continue;
    std::string variants;
    for (const auto& variant : program->variants)
      if (variant)
        variants += fmt::format("{}{}: {} steps, {} per layer", variants.empty() ? "" : "; ", variant->name,
                                variant->steps.size(), steps_a_layer(*variant));
    note(fmt::format("{}, context {}: {}; arena {} ({:.3f} of its lower bound); weights {}", program->target,
                     program->context, variants, human_bytes(static_cast<std::uint64_t>(program->arena_bytes)),
                     arena_ratio(program->arena_bytes, program->arena_bound_bytes),
                     human_bytes(static_cast<std::uint64_t>(program->weights_bytes))));
  }
  note(fmt::format("{}: {} {:.2f} s", where, built ? "compiled in" : "found in the cache, opened in", seconds));
}

}  // namespace forge::tools
