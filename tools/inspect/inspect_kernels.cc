#include "tools/inspect/inspect_kernels.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>

#include "codegen/gpu/targets.h"
#include "runtime/plan/step.h"
#include "support/error.h"
#include "support/os/console.h"

namespace forge::tools {
namespace {

/// Number of steps that launch each kernel, over all variants and the load steps, which repack weights.
std::map<std::string_view, std::size_t> launches(const plan::ProgramT& program) {
  std::map<std::string_view, std::size_t> counts;
  const auto count = [&](const std::vector<std::unique_ptr<plan::StepT>>& steps) {
    for (const auto& step : steps)
      if (step) ++counts[plan::kernel_name(program, *step)];
  };
  count(program.load_steps);
  for (const auto& variant : program.variants) {
    if (!variant) continue;
    count(variant->steps);
    count(variant->sample_steps);
  }
  return counts;
}

std::string fact(std::int32_t value) {
  return value < 0 ? "-" : fmt::format("{}", value);
}
std::string byte_fact(std::int32_t value) {
  return value < 0 ? "-" : human_bytes(static_cast<std::uint64_t>(value));
}

}  // namespace

std::string code_objects_text(const plan::ProgramT& program) {
  std::size_t bytes = 0, count = 0;
  std::set<std::string> compilers;
  for (const auto& object : program.code_objects) {
    if (!object) continue;
    bytes += object->bytes.size();
    ++count;
    compilers.insert(printable(object->compiler));
  }
  if (count == 0) return {};
  const codegen::GpuTarget* target = codegen::find_target(program.target);
  const std::string of =
      target == nullptr ? ""
                        : fmt::format("/{}", target->waves_per_simd * codegen::kSimdsPerUnit / target->compute_units);
  std::string out =
      fmt::format("  kernels: {} code objects of {}, by {}\n", count, human_bytes(bytes), fmt::join(compilers, ", "));
  out += fmt::format("    {:>5} {:>7} {:>9} {:>9} {:>6} {:>9} {:>5}  {}\n", "regs", "scalars", "scratch", "LDS",
                     "waves", "size", "steps", "kernel");
  auto steps = launches(program);
  for (const auto& object : program.code_objects) {
    if (!object) continue;
    out += fmt::format("    {:>5} {:>7} {:>9} {:>9} {:>6} {:>9} {:>5}  {}\n", fact(object->registers),
                       fact(object->scalar_registers), byte_fact(object->spill_bytes), byte_fact(object->lds_bytes),
                       object->occupancy < 0 ? "-" : fact(object->occupancy) + of, human_bytes(object->bytes.size()),
                       steps[object->name], printable(object->name, 200));
  }
  return out;
}

void code_objects_json(JsonWriter& json, const plan::ProgramT& program) {
  auto steps = launches(program);
  json.open("code_objects", '[');
  for (const auto& object : program.code_objects) {
    if (!object) continue;
    json.open('{').field("name", object->name).field("bytes", object->bytes.size());
    json.field("registers", object->registers).field("scalar_registers", object->scalar_registers);
    json.field("spill_bytes", object->spill_bytes).field("lds_bytes", object->lds_bytes);
    json.field("occupancy", object->occupancy).field("compiler", object->compiler);
    json.field("steps", steps[object->name]).close();
  }
  json.close();
}

}  // namespace forge::tools
