// fuse_epilogues: nodes that the special fusion passes left over become epilogues of the step that produces their
// operand: expert sums, residual adds, a norm's weight and sum of squares, 1/rms, scales, activations, quantisation.
//   matmul -> add (residual) -> mul (norm weight) -> quantize    =>    one group
// Where the target allows it, the matmul may also take an RMSNorm of its rows (post-norm) and what follows it.
// Producers are tried in the order of `kProducerOrder`: matmuls first, because they cost most; then embedding, gathered
// rows and norms; then rope and split; then chains of epilogue ops among themselves.

#include <array>

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
    case Op::kExpertSum:
      return true;
    default:
      return ir::op_def(op).elementwise;
  }
}

bool is_row_source(Op op) {
  return op == Op::kEmbed || op == Op::kGatherRows || op == Op::kRmsNorm || op == Op::kLayerNorm;
}

}  // namespace

bool fuse_epilogues(ir::Graph& graph, PassContext& context) {
  GroupGrower grower(graph, context, "fuse_epilogues");
  const bool norms = context.target.fuses_row_norms();
  const auto filter = [&](NodeId node) {
    return is_epilogue(graph.op(node)) || (norms && graph.op(node) == Op::kRmsNorm);
  };
  using Producers = bool (*)(Op);
  constexpr std::array<Producers, 4> kProducerOrder{
      is_matmul, is_row_source, [](Op op) { return op == Op::kRope || op == Op::kSplit; }, is_epilogue};
  bool changed = false;
  for (const Producers is_producer : kProducerOrder)
    for (const NodeId node : grower.order())
      if (is_producer(graph.op(node)) && !grower.taken(node))
        changed = grower.commit(grower.grow(node, filter)) || changed;

  // rope_freqs that depend on factors of the model file cannot be folded into a constant; they join their rope_table.
  const auto table = [&](NodeId node) { return graph.op(node) == Op::kRopeTable; };
  for (const NodeId node : grower.order())
    if (graph.op(node) == Op::kRopeFreqs) changed = grower.commit(grower.grow(node, table)) || changed;
  return changed;
}

}  // namespace forge::passes
