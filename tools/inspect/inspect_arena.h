#pragma once
// forge-inspect PLAN --arena-svg FILE: draws the arena of one variant, with the offset and lifetime of each buffer.

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/plan/plan_generated.h"
#include "tools/viz/arena_svg.h"

namespace forge::tools {

/// The arena of the program that program_to_draw chooses. `variant` is a name; empty: the first. Scratch of a GPU's
/// sampling steps, which run when no other buffer is live, is not drawn. Errors: those of program_to_draw and
/// variant_to_draw.
[[nodiscard]] ArenaPicture arena_picture(const plan::PlanT& plan, const std::optional<std::string>& variant);

/// Reads `plan` and writes the drawing to `svg`. Returns a note for the user. Errors: those of check_output_path,
/// before anything is read; those of read_plan_to_draw and arena_picture; kIo.
std::string write_arena_svg(const std::filesystem::path& plan, const std::optional<std::string>& variant,
                            const std::filesystem::path& svg);

}  // namespace forge::tools
