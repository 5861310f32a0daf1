#pragma once
// Which values need room in the arena, how long, and which of them share it because one is computed in place of
// another.

#include <span>
#include <vector>

#include "passes/program.h"
#include "passes/schedule/schedule.h"

namespace forge::passes {

/// One buffer for each value that leaves its step, ordered by first step; offsets are not set yet. A value lives from
/// the step that makes it to the last one that reads it; outputs of the graph have a block of their own. Results that
/// nobody reads have room while their step writes them. A result takes the buffer of an operand where the op table
/// allows it, its step is the operand's last reader, and nothing else in the step reads the operand.
std::vector<Buffer> plan_buffers(const ir::Graph& graph, std::span<const StepNodes> steps, const ir::Bounds& bounds);

}  // namespace forge::passes
