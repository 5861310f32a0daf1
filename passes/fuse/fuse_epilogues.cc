// fuse_epilogues: what is left over joins the step that makes its operand: the sum over experts, residual add, the
// norm's weight and sum of squares, 1/rms, factors, activations, quantisation. Matmuls are asked first, they cost most;
// then embedding and gathered rows and norms; at last chains of elementwise nodes among themselves.

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
  const auto filter = [&](NodeId node) { return is_epilogue(graph.op(node)); };
  using Wave = bool (*)(Op);
  constexpr std::array<Wave, 4> kWaves{is_matmul, is_row_source,
                                       [](Op op) { return op == Op::kRope || op == Op::kSplit; }, is_epilogue};
  bool changed = false;
  for (const Wave wave : kWaves)
    for (const NodeId node : grower.order())
      if (wave(graph.op(node)) && !grower.taken(node)) changed = grower.commit(grower.grow(node, filter)) || changed;

  // Frequencies that depend on the model file's factors are made where the step's angles are.
  const auto table = [&](NodeId node) { return graph.op(node) == Op::kRopeTable; };
  for (const NodeId node : grower.order())
    if (graph.op(node) == Op::kRopeFreqs) changed = grower.commit(grower.grow(node, table)) || changed;
  return changed;
}

}  // namespace forge::passes
