// fuse_epilogues: nodes that the special fusion passes left over become epilogues of the step that produces their
// operand: expert sums, residual adds, a norm's weight and sum of squares, 1/rms, scales, activations, quantisation.
//   matmul -> add (residual) -> mul (norm weight) -> quantize    =>    one group
// Where the target allows it, these take RMSNorms too (a matmul that of its whole rows, a post-norm, with what follows
// it), and a matmul takes the router whose logits it computes.
// Producers are tried in an order: matmuls first, because they cost most; then embedding, gathered
// rows, norms and convolutions; then rope and split; then chains of epilogue ops among themselves.

#include "passes/fuse/grow_group.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;

bool is_epilogue(Op op) {
  switch (op) {
    case Op::kInvRmsScale:
    case Op::kSumSquares:
    case Op::kQuantize:
    case Op::kExpertAdd:
    case Op::kExpertScale:
    case Op::kExpertSum:
      return true;
    default:
      return ir::op_def(op).elementwise;
  }
}

bool is_row_source(Op op) {
  return op == Op::kEmbed || op == Op::kGatherRows || op == Op::kRmsNorm || op == Op::kLayerNorm ||
         op == Op::kShortConv;
}

}  // namespace

bool fuse_epilogues(ir::Graph& graph, PassContext& context) {
  GroupGrower grower(graph, context, "fuse_epilogues");
  const auto splits = [&](NodeId node) {
    return graph.op(node) == Op::kSplit && graph.attrs_as<ir::PartsAttrs>(node).unit == 0;
  };
  // A split that stays alone costs nothing where it is a view.
  const auto is_view = [&](NodeId node) { return context.target.views_columns() && splits(node); };
  const bool norms = context.target.fuses_row_norms();
  const auto epilogues = [&](NodeId node) {
    return is_epilogue(graph.op(node)) || (norms && (graph.op(node) == Op::kRmsNorm || graph.op(node) == Op::kRoute));
  };
  const auto with_splits = [&](NodeId node) { return epilogues(node) || splits(node); };
  bool changed = false;
  const auto grow = [&](const GroupGrower::Filter& is_producer, const GroupGrower::Filter& filter) {
    for (const NodeId node : grower.order())
      if (is_producer(node) && !grower.taken(node)) changed = grower.commit(grower.grow(node, filter)) || changed;
  };
  grow([&](NodeId node) { return is_matmul(graph, node); }, with_splits);
  grow([&](NodeId node) { return is_row_source(graph.op(node)); }, epilogues);
  grow([&](NodeId node) { return graph.op(node) == Op::kRope || (graph.op(node) == Op::kSplit && !is_view(node)); },
       epilogues);
  grow(epilogues, epilogues);

  // rope_freqs that depend on factors of the model file cannot be folded into a constant; they join their rope_table.
  const auto table = [&](NodeId node) { return graph.op(node) == Op::kRopeTable; };
  for (const NodeId node : grower.order())
    if (graph.op(node) == Op::kRopeFreqs) changed = grower.commit(grower.grow(node, table)) || changed;
  return changed;
}

}  // namespace forge::passes
