#include "tools/inspect_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "codegen/reschedule.h"
#include "ir/text.h"
#include "runtime/plan/plan_file.h"
#include "support/error.h"
#include "tools/open_model.h"

namespace forge::tools {

const plan::ProgramT& program_to_draw(const plan::PlanT& plan) {
  const int index = choose_program(plan);
  const auto found = index >= 0 ? plan.programs.begin() + index
                                : std::ranges::find_if(plan.programs, [](const auto& p) { return p != nullptr; });
  if (found == plan.programs.end())
    throw Error(ErrorCode::kPlan, "the plan has no program", {}, "compile the model again (forge-compile)");
  const auto& program = **found;
  if (program.context < 1 || program.context > kContextMax || program.batch_max < 1 ||
      program.batch_max > kSequencesMax)
    throw Error(ErrorCode::kPlan, "the plan's context or batch is absurd", {},
                "compile the model again (forge-compile)");
  return program;
}

std::vector<passes::Program> scheduled(const plan::PlanT& plan) {
  const auto& written = program_to_draw(plan);
  return codegen::reschedule(ir::parse(plan.graph), written);
}

Drawn variant_to_draw(const std::vector<passes::Program>& programs, const std::optional<std::string>& name) {
  std::vector<std::string> names;
  for (const auto& program : programs) {
    for (const auto& variant : program.variants) {
      if (!name || variant.name == *name) return {program, variant};
      names.push_back(variant.name);
    }
  }
  throw Error(ErrorCode::kUsage, "the plan has no variant '" + printable(*name) + "'", {},
              fmt::format("its variants are {}", fmt::join(names, ", ")));
}

plan::PlanT read_plan_to_draw(const std::filesystem::path& path, std::string_view option) {
  if (std::filesystem::is_regular_file(path) && !plan::looks_like_plan(path))
    throw Error(ErrorCode::kUsage, fmt::format("{} goes with a plan", option),
                fmt::format("{} is none", printable(path.native(), 200)), "make one with forge-compile MODEL -o PLAN");
  return plan::read_plan(path);
}

}  // namespace forge::tools
