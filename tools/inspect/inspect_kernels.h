#pragma once
// The code objects of a plan's GPU program: what each kernel takes of a compute unit, for forge-inspect.

#include <string>

#include "runtime/plan/plan_generated.h"
#include "support/json_text.h"

namespace forge::tools {

/// A line of totals and one a kernel: registers, scratch, LDS, waves that a compute unit holds of those that it can
/// hold, size, and how many steps of all variants launch it. Empty for a program without code objects.
[[nodiscard]] std::string code_objects_text(const plan::ProgramT& program);

/// The same as member "code_objects", facts that the compiler does not say as -1.
void code_objects_json(JsonWriter& json, const plan::ProgramT& program);

}  // namespace forge::tools
