#pragma once
// forge-inspect PLAN --arena-svg FILE: the arena over the schedule of one variant.

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/plan/plan_generated.h"
#include "tools/arena_svg.h"

namespace forge::tools {

/// The arena of the program that this machine runs, or of the plan's first. `variant` is a name; none: the first one.
/// Lifetimes and sizes stand in no plan: they come from running the passes on the plan's portable graph again, which
/// is checked against the plan's steps (codegen/reschedule.h), so the picture is exact. Scratch of a GPU's sampling
/// steps, which run when nothing else is alive, is not drawn.
/// Errors: kPlan for a plan without programs, with absurd sizes or with steps that this forge would not make; kUsage
/// for a variant that is not there.
[[nodiscard]] ArenaPicture arena_picture(const plan::PlanT& plan, const std::optional<std::string>& variant);

/// Reads `plan` and writes the picture to `svg`. Returns one line for people. Errors: those of check_output_path before
/// anything is read, read_plan's, arena_picture's, kIo; kUsage when the file is no plan.
std::string write_arena_svg(const std::filesystem::path& plan, const std::optional<std::string>& variant,
                            const std::filesystem::path& svg);

}  // namespace forge::tools
