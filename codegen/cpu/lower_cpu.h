#pragma once
// Lowers a scheduled program for the CPU: places weights, writes the addresses of the chosen steps, and adds the steps
// that load the weights.

#include <memory>
#include <optional>

#include "codegen/model_file.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// Fills all of the plan's program except target, facts, options and context, which the caller fills in.
/// kv_type: F16 or Q8_0. hidden: the same model with hidden rows as output; its variants come after those of `program`
/// and use the same weights.
/// Errors: kInternal if a value has no place; kPlan if a tensor is not in the model file; kModelUnsupported if the
/// model's heads do not fit kv_type.
std::unique_ptr<plan::ProgramT> lower_cpu(passes::Program program, std::optional<passes::Program> hidden,
                                          const ModelFile& model, DType kv_type);

}  // namespace forge::codegen
