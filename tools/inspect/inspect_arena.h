#pragma once
// forge-inspect PLAN --arena-svg FILE: the arena over the schedule of one variant.

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/plan/plan_generated.h"
#include "tools/viz/arena_svg.h"

namespace forge::tools {

/// The arena of the program that program_to_draw chooses. `variant` is a name; none: the first one. Scratch of a GPU's
/// sampling steps, which run when nothing else is alive, is not drawn. Errors: those of program_to_draw and
/// variant_to_draw.
[[nodiscard]] ArenaPicture arena_picture(const plan::PlanT& plan, const std::optional<std::string>& variant);

/// Reads `plan` and writes the picture to `svg`. Returns one line for people. Errors: those of check_output_path before
/// anything is read, read_plan_to_draw's, arena_picture's, kIo.
std::string write_arena_svg(const std::filesystem::path& plan, const std::optional<std::string>& variant,
                            const std::filesystem::path& svg);

}  // namespace forge::tools
