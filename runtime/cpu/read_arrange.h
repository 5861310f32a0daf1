#pragma once
// Reading a step that picks columns head by head.

#include "runtime/cpu/plan_reader.h"

namespace forge::runtime {

/// Fills in `out`, a step of `variant`. Ints of the step: whether rows are those of logits, heads, floats of a result's
/// row; then five of each piece: its operand's reference (0: zeros), floats of the operand's row, begin, stride and
/// width (ir::ArrangeAttrs). References: the result, then the operands. Throws Error(kPlan) as every reader.
void read_arrange(const PlanReader& reader, const plan::StepT& step, const CpuVariant& variant, CpuStep& out);

}  // namespace forge::runtime
