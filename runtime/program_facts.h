#pragma once
// The facts that a program states about its target (TargetFacts in plan.fbs). The engine and the tools use these
// instead of the target's name, so they need no knowledge of targets.

#include "kernels/quant/dtype.h"
#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

/// Returns the checked facts. Throws Error(kPlan) when they are missing, out of range or contradict the program.
[[nodiscard]] const plan::TargetFactsT& facts_of(const plan::ProgramT& program);

/// True if the program is an encoder's: all its variants return hidden rows, and a sequence's tokens must all be in one
/// step.
[[nodiscard]] bool is_encoder(const plan::ProgramT& program);

/// True if programs of this target can keep the KV cache in `type`.
[[nodiscard]] bool supports_kv_type(const plan::TargetFactsT& facts, DType type);

}  // namespace forge::runtime
