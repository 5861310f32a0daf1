// fuse_glu: the gate/up matmul of a GLU, the nodes between them (1/rms, bias, scale, split), the GLU itself and the
// quantisation of its result become one group.
//   matmul -> inv_rms_scale -> split -> glu -> quantize    =>    one group

#include <algorithm>

#include "passes/fuse/grow_group.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;

/// Ops that may stand between the matmul and the GLU.
bool is_before_glu(Op op) {
  return op == Op::kInvRmsScale || op == Op::kAdd || op == Op::kExpertAdd || op == Op::kExpertScale || op == Op::kMul ||
         op == Op::kScale || op == Op::kSplit;
}

}  // namespace

bool fuse_glu(ir::Graph& graph, PassContext& context) {
  GroupGrower grower(graph, context, "fuse_glu");
  const auto through = [&](NodeId node) { return is_before_glu(graph.op(node)); };
  const auto goal = [&](NodeId node) { return graph.op(node) == Op::kGlu; };
  const auto filter = [&](NodeId node) { return through(node) || goal(node) || graph.op(node) == Op::kQuantize; };
  bool changed = false;
  for (const NodeId node : grower.order()) {
    if (!is_matmul(graph, node) || grower.taken(node) || !leads_to(graph, node, through, goal)) continue;
    const auto members = grower.grow(node, filter);
    // Without the GLU (its other operand is computed later) fuse_epilogues finds more to add.
    if (std::ranges::any_of(members, goal)) changed = grower.commit(members) || changed;
  }
  return changed;
}

}  // namespace forge::passes
