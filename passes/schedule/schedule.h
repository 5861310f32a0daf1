#pragma once
// From groups to steps in order.

#include <span>
#include <vector>

#include "passes/passes.h"

namespace forge::passes {

/// A step's nodes in topological order: one fused group, or a single node.
using StepNodes = std::vector<ir::NodeId>;

/// Steps in an order in which every step finds its operands made. A step is placed as late as its first reader allows
/// (operands with the longest way to them first), so that small values made for one reader (a table of angles, say) do
/// not wait in the arena. Deterministic. Throws Error(kInternal) when groups wait for each other (PH-003).
std::vector<StepNodes> schedule(const ir::Graph& graph);

/// The step of each node by NodeId; -1 for nodes that no step computes.
std::vector<std::int32_t> step_of_node(const ir::Graph& graph, std::span<const StepNodes> steps);

}  // namespace forge::passes
