#pragma once
// Resource use of the kernels of a plan's GPU program, for forge-inspect PLAN.

#include <string>

#include "runtime/plan/plan_generated.h"
#include "support/json_text.h"

namespace forge::tools {

/// A line of totals, then one line per kernel: vector and scalar registers, scratch (spills), LDS, occupancy in waves
/// per compute unit out of the maximum, size, and the number of steps of all variants that launch it. Empty for a
/// program without code objects.
[[nodiscard]] std::string code_objects_text(const plan::ProgramT& program);

/// The same as the JSON member "code_objects"; values that the compiler does not report are -1.
void code_objects_json(JsonWriter& json, const plan::ProgramT& program);

}  // namespace forge::tools
