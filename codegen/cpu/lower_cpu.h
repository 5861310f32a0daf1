#pragma once
// A scheduled program becomes the CPU's part of a plan: chosen steps get their addresses, weights their places.

#include <memory>
#include <optional>

#include "codegen/model_file.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// Everything of the plan's program but target, options and context, which the caller knows.
/// kv_type: F16 or Q8_0. `hidden`: the same model as it gives hidden rows; its variants follow, on the same weights.
/// Throws Error(kInternal) when a value has no place or a tensor is not in the model file, and Error(kModelUnsupported)
/// when the model's heads do not fit kv_type.
std::unique_ptr<plan::ProgramT> lower_cpu(passes::Program program, std::optional<passes::Program> hidden,
                                          const ModelFile& model, DType kv_type);

}  // namespace forge::codegen
