#pragma once
// Scheduling: turns fused groups and single nodes into an ordered list of steps. Used by bind_variants; liveness and
// the arena follow from the order.

#include <span>
#include <vector>

#include "passes/schedule/views.h"

namespace forge::passes {

/// A step's nodes in topological order: one fused group, or a single node.
using StepNodes = std::vector<ir::NodeId>;

/// All steps in an order in which every step follows the producers of its operands. A step runs shortly before its
/// first reader (operands with the longest chain in front of them first), so that values such as the RoPE table do not
/// occupy the arena longer than needed. Views are in no step. Deterministic. Throws Error(kInternal) if groups depend
/// on each other (PH-003).
std::vector<StepNodes> schedule(const ir::Graph& graph, const Views& views = {});

/// Index of the step that computes each node, by NodeId; -1 for nodes that no step computes.
std::vector<std::int32_t> step_of_node(const ir::Graph& graph, std::span<const StepNodes> steps);

}  // namespace forge::passes
