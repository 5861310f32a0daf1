#pragma once
// Selects and checks the program and variant of a plan that --arena-svg and --graph-svg draw.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/plan/plan_generated.h"

namespace forge::tools {

/// The program that this machine would run; if there is none, the plan's first. Errors: kPlan for a plan without
/// programs.
[[nodiscard]] const plan::ProgramT& program_to_draw(const plan::PlanT& plan);

/// The variant `name` of `program`; the first if empty. Errors: kUsage for an unknown name, with the list of variants;
/// kPlan for a variant with missing steps, or with buffers outside its arena or its steps.
[[nodiscard]] const plan::VariantT& variant_to_draw(const plan::ProgramT& program,
                                                    const std::optional<std::string>& name);

/// Reads the plan. Errors: those of read_plan; kUsage, naming `option`, when the file is not a plan.
[[nodiscard]] plan::PlanT read_plan_to_draw(const std::filesystem::path& path, std::string_view option);

}  // namespace forge::tools
