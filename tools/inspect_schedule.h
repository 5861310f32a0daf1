#pragma once
// A plan's program with the schedule it was lowered from, for the pictures of it: lifetimes, sizes and groups stand in
// no plan, they come from running the passes on the plan's portable graph again (codegen/reschedule.h), which is
// checked against the plan's steps. So pictures are exact.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::tools {

/// The program that this machine runs, or else the plan's first. Errors: kPlan for a plan without programs or with
/// absurd sizes.
[[nodiscard]] const plan::ProgramT& program_to_draw(const plan::PlanT& plan);

/// What reschedule gives for program_to_draw. Errors: those of program_to_draw; kPlan for steps that this forge would
/// not make.
[[nodiscard]] std::vector<passes::Program> scheduled(const plan::PlanT& plan);

/// A variant, and the program whose graph its steps are of.
struct Drawn {
  const passes::Program& program;
  const passes::Variant& variant;
};

/// `name` among the variants of `programs`; none: the first. Errors: kUsage naming those that there are.
[[nodiscard]] Drawn variant_to_draw(const std::vector<passes::Program>& programs,
                                    const std::optional<std::string>& name);

/// Errors: those of read_plan; kUsage naming `option` when the file is no plan.
[[nodiscard]] plan::PlanT read_plan_to_draw(const std::filesystem::path& path, std::string_view option);

}  // namespace forge::tools
