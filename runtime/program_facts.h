#pragma once
// What a program says of its target, for all who must not know targets: executors, the engine, tools.

#include "kernels/quant/dtype.h"
#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

/// Throws Error(kPlan) when they are missing, absurd, or contradict the program.
[[nodiscard]] const plan::TargetFactsT& facts_of(const plan::ProgramT& program);

/// Can the target's programs keep KV in this type?
[[nodiscard]] bool keeps_kv_in(const plan::TargetFactsT& facts, DType type);

}  // namespace forge::runtime
