// split_rms_norm: divides an RMSNorm in front of matmuls into an epilogue of the producer of x and an epilogue of each
// matmul, so that the norm needs no step of its own:
//   y = matmul(rms_norm(x, w), W)   =>   y = inv_rms_scale(matmul(mul(x, w), W), sum_squares(x))
// The producer of x multiplies by w and sums squares as it computes x. The factor 1/rms is one number for each
// row, so it can be applied after the product:
//   sum_k (x_k / rms * w_k) W_nk  =  (sum_k x_k w_k W_nk) / rms

#include "passes/passes.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;
using ir::Value;

/// Collects the matmuls that read `value`, directly or quantised. False if anything else reads it.
bool only_matmuls_read(const ir::Graph& graph, Value value, std::vector<NodeId>& matmuls) {
  if (graph.is_output(value)) return false;
  for (const ir::Use& use : graph.uses(value)) {
    if (is_matmul(graph, use.node) && use.operand == 0)
      matmuls.push_back(use.node);
    else if (graph.op(use.node) != Op::kQuantize || !only_matmuls_read(graph, {use.node, 0}, matmuls))
      return false;
  }
  return true;
}

/// The sums of squares of x, which several norms of x share.
Value squares_of(ir::Graph& graph, Value x, std::int32_t layer) {
  for (const ir::Use& use : graph.uses(x))
    if (graph.op(use.node) == Op::kSumSquares) return {use.node, 0};
  return {graph.add(Op::kSumSquares, {x}, {}, layer), 0};
}

}  // namespace

bool split_rms_norm(ir::Graph& graph, PassContext& context) {
  bool changed = false;
  for (const NodeId norm : graph.topological_order()) {
    if (graph.op(norm) != Op::kRmsNorm) continue;
    const Value x = graph.operand(norm, 0);
    const ir::NormAttrs attrs = graph.attrs_as<ir::NormAttrs>(norm);
    std::vector<NodeId> matmuls;
    std::string_view refusal;
    if (!context.target.splits_rms_norm())
      refusal = "the target does not split norms";
    else if (attrs.dim != graph.type(x).cols())
      refusal = "the mean is over a part of a row";
    else if (!only_matmuls_read(graph, {norm, 0}, matmuls) || matmuls.empty())
      refusal = "something other than matmuls reads the norm";
    if (!refusal.empty()) {
      note(context, "split_rms_norm", graph, norm, refusal);
      continue;
    }
    const std::int32_t layer = graph.layer(norm);
    const Value scaled{graph.add(Op::kMul, {x, graph.operand(norm, 1)}, {}, layer), 0};
    const Value squares = squares_of(graph, x, layer);
    graph.replace_uses({norm, 0}, scaled);
    graph.remove(norm);
    for (const NodeId matmul : matmuls) {
      const Value out{matmul, 0};
      const NodeId inverse = graph.add(Op::kInvRmsScale, {out, squares}, attrs, graph.layer(matmul));
      graph.replace_uses(out, {inverse, 0}, inverse);
    }
    changed = true;
  }
  return changed;
}

}  // namespace forge::passes
