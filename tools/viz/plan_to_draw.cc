#include "tools/viz/plan_to_draw.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "runtime/plan/plan_file.h"
#include "session/open_model.h"
#include "support/error.h"

namespace forge::tools {
namespace {

[[noreturn]] void broken(const plan::VariantT& variant, std::string_view what) {
  throw Error(ErrorCode::kPlan,
              fmt::format("{} of the plan's variant '{}' cannot be drawn", what, printable(variant.name)), {},
              "compile the model again (forge-compile)");
}

void check(const plan::VariantT& variant) {
  const auto steps = variant.steps.size();
  if (steps == 0 || std::ranges::any_of(variant.steps, [](const auto& step) { return step == nullptr; }))
    broken(variant, "a missing step");
  if (variant.arena_bytes < 0) broken(variant, "the arena");
  for (const auto& buffer : variant.buffers) {
    if (buffer == nullptr || buffer->first > buffer->last || buffer->last >= steps || buffer->offset < 0 ||
        buffer->bytes < 0 || buffer->bytes > variant.arena_bytes ||
        buffer->offset > variant.arena_bytes - buffer->bytes)
      broken(variant, "a buffer");
    for (const auto& value : buffer->values)
      if (value == nullptr || value->step >= steps) broken(variant, "a value");
  }
}

}  // namespace

const plan::ProgramT& program_to_draw(const plan::PlanT& plan) {
  const int index = session::choose_program(plan);
  const auto found = index >= 0 ? plan.programs.begin() + index
                                : std::ranges::find_if(plan.programs, [](const auto& p) { return p != nullptr; });
  if (found == plan.programs.end())
    throw Error(ErrorCode::kPlan, "the plan has no program", {}, "compile the model again (forge-compile)");
  return **found;
}

const plan::VariantT& variant_to_draw(const plan::ProgramT& program, const std::optional<std::string>& name) {
  std::vector<std::string> names;
  for (const auto& variant : program.variants) {
    if (variant == nullptr) continue;
    if (!name || variant->name == *name) {
      check(*variant);
      return *variant;
    }
    names.push_back(printable(variant->name));
  }
  if (names.empty())
    throw Error(ErrorCode::kPlan, "the plan's program has no variants", {}, "compile the model again (forge-compile)");
  throw Error(ErrorCode::kUsage, "the plan has no variant '" + printable(*name) + "'", {},
              fmt::format("its variants are {}", fmt::join(names, ", ")));
}

plan::PlanT read_plan_to_draw(const std::filesystem::path& path, std::string_view option) {
  if (std::filesystem::is_regular_file(path) && !plan::looks_like_plan(path))
    throw Error(ErrorCode::kUsage, fmt::format("{} needs a plan", option),
                fmt::format("{} is not a plan", printable(path.native(), 200)),
                "compile one with forge-compile MODEL -o PLAN");
  return plan::read_plan(path);
}

}  // namespace forge::tools
