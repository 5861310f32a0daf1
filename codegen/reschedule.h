#pragma once
// A plan keeps where values lie, but neither their sizes nor how long they live: executors do not need that. Passes are
// deterministic, so both come back by running them once more on the portable graph that the plan carries.

#include <vector>

#include "codegen/compile.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// What options_text said when `program` was compiled. Errors: kPlan for text that it cannot have said.
CompileOptions options_of(const plan::ProgramT& program);

/// The scheduled programs that `program` was lowered from: the one whose variants give logits and, in a plan for
/// embeddings too, the one whose variants give hidden rows; `portable` is the plan's graph. No kernel is compiled and
/// no model is read. They are the same, not some like them: variants, their steps with label, layer and bytes, and the
/// arena's sizes are compared, and every reference of a step to the arena must lie in a buffer that lives at that step.
/// Errors: kPlan when something differs (the plan was made by another forge, or edited) and for a target that does not
/// exist; those of the pipeline.
std::vector<passes::Program> reschedule(const ir::Graph& portable, const plan::ProgramT& program);

}  // namespace forge::codegen
