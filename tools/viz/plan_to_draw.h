#pragma once
// What of a plan its pictures show.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/plan/plan_generated.h"

namespace forge::tools {

/// The program that this machine runs, or else the plan's first. Errors: kPlan for a plan without programs.
[[nodiscard]] const plan::ProgramT& program_to_draw(const plan::PlanT& plan);

/// `name` among the variants of `program`; none: the first. Errors: kUsage naming those that there are; kPlan for a
/// variant with missing steps, or buffers that lie outside its arena or its steps.
[[nodiscard]] const plan::VariantT& variant_to_draw(const plan::ProgramT& program,
                                                    const std::optional<std::string>& name);

/// Errors: those of read_plan; kUsage naming `option` when the file is no plan.
[[nodiscard]] plan::PlanT read_plan_to_draw(const std::filesystem::path& path, std::string_view option);

}  // namespace forge::tools
