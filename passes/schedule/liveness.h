#pragma once
// Liveness of values: which values need a buffer in the arena, during which steps, and which of them share a buffer
// because one overwrites the other in place. pack_arena then assigns offsets.

#include <span>
#include <vector>

#include "passes/program.h"
#include "passes/schedule/schedule.h"

namespace forge::passes {

/// The buffers of all values that leave their step, ordered by first step; offsets are not set yet. A value is live
/// from the step that computes it to the last one that reads it; a result without readers is live during its own step.
/// Views have no buffers; their uses are those of the value that they are views of. Outputs of the graph are outside
/// the arena. A result shares an operand's buffer if the op may work in place (op table), the step is the operand's
/// last reader, and nothing else in the step reads the operand. stored: the variant's (Target::stored_forms).
std::vector<Buffer> plan_buffers(const ir::Graph& graph, std::span<const StepNodes> steps, const ir::Bounds& bounds,
                                 const Views& views = {}, const StoredForms& stored = {});

}  // namespace forge::passes
