#pragma once
// A plan keeps where values lie, but neither their sizes nor how long they live: executors do not need that. Passes are
// deterministic, so both come back by running them once more on the portable graph that the plan carries.

#include "codegen/compile.h"
#include "passes/program.h"
#include "runtime/plan/plan_generated.h"

namespace forge::codegen {

/// What options_text said when `program` was compiled. Errors: kPlan for text that it cannot have said.
CompileOptions options_of(const plan::ProgramT& program);

/// The scheduled program that `program` was lowered from; `portable` is its plan's graph. No kernel is compiled and no
/// model is read. It is the same, not one like it: variants, their steps with label, layer and bytes, and the arena's
/// sizes are compared, and every reference of a step to the arena must lie in a buffer that lives at that step.
/// Errors: kPlan when something differs (the plan was made by another forge, or edited) and for a target that does not
/// exist; those of the pipeline.
passes::Program reschedule(const ir::Graph& portable, const plan::ProgramT& program);

}  // namespace forge::codegen
