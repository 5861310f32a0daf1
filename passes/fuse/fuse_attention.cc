// fuse_attention: attention and the quantisation of its result for the output projection become one group.
//   attention -> quantize -> matmul    =>    [attention, quantize] -> matmul

#include "passes/fuse/grow_group.h"

namespace forge::passes {

bool fuse_attention(ir::Graph& graph, PassContext& context) {
  GroupGrower grower(graph, context, "fuse_attention");
  const auto filter = [&](ir::NodeId node) { return graph.op(node) == ir::Op::kQuantize; };
  bool changed = false;
  for (const ir::NodeId node : grower.order())
    if (graph.op(node) == ir::Op::kAttention) changed = grower.commit(grower.grow(node, filter)) || changed;
  return changed;
}

}  // namespace forge::passes
