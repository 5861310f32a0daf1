#pragma once
// Bytes that a step must move and arithmetic that it must do, counting real rows and cached positions only.

#include "runtime/plan/plan_generated.h"
#include "tools/bench/step_shape.h"

namespace forge::tools {

/// Cached keys and values that a step reads. Steps with an operand in the KV cache and no weights are attention and
/// read all positions that its group keeps; others (matmuls that store keys and values) read none.
[[nodiscard]] double kv_bytes(const plan::ProgramT& program, const plan::StepT& step, const StepShape& shape);

/// Weights, activations of the step's real rows, and kv_bytes.
[[nodiscard]] double step_bytes(const plan::ProgramT& program, const plan::VariantT& variant, const plan::StepT& step,
                                const StepShape& shape);

/// FLOPs of the step's real rows.
[[nodiscard]] double step_flops(const plan::VariantT& variant, const plan::StepT& step, const StepShape& shape);

}  // namespace forge::tools
