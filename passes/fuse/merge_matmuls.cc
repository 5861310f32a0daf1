#include "passes/fuse/merge_matmuls.h"

#include <algorithm>

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;
using ir::Value;

/// concat_rows of all projections' weights (`node` is &Projection::matmul) or biases (&Projection::bias): operand 1 of
/// each.
Value concat(ir::Graph& graph, std::span<const Projection> projections, NodeId Projection::* node,
             const ir::PartsAttrs& parts, std::int32_t layer) {
  std::vector<Value> weights;
  for (const Projection& projection : projections) weights.push_back(graph.operand(projection.*node, 1));
  return {graph.add(Op::kConcatRows, std::move(weights), parts, layer), 0};
}

/// Adds a node with the op and layer of `like` on `operands`. For expert ops, the experts operand of `like` follows.
Value add_same_op(ir::Graph& graph, NodeId like, std::vector<Value> operands) {
  const auto known = graph.operands(like);
  operands.insert(operands.end(), known.begin() + 2, known.end());
  return {graph.add(graph.op(like), std::move(operands), {}, graph.layer(like)), 0};
}

}  // namespace

/// A bias is an add whose second operand is a vector of the model file with no other use, and which is the only user of
/// the matmul.
Projection projection_of(const ir::Graph& graph, NodeId matmul) {
  const NodeId user = single_user(graph, {matmul, 0});
  const bool experts = graph.op(matmul) == Op::kExpertMatmul;
  if (user == ir::kNoNode || graph.op(user) != (experts ? Op::kExpertAdd : Op::kAdd)) return {matmul};
  const Value bias = graph.operand(user, 1);
  const bool is_bias = (graph.op(bias.node) == Op::kWeight || graph.op(bias.node) == Op::kSliceRows) &&
                       graph.type(bias).shape.size() == (experts ? 3 : 1) &&
                       graph.type(bias).shape[experts ? 1 : 0] == graph.type({matmul, 0}).shape.back() &&
                       single_user(graph, bias) == user;
  return {matmul, is_bias ? user : ir::kNoNode};
}

std::string merge_refusal(const ir::Graph& graph, std::span<const Projection> projections) {
  const Value x = graph.operand(projections[0].matmul, 0);
  const Value first = graph.operand(projections[0].matmul, 1);
  const auto others = graph.operands(projections[0].matmul).subspan(2);
  for (const Projection& projection : projections) {
    const Value weight = graph.operand(projection.matmul, 1);
    if (graph.op(projection.matmul) == Op::kBatchedMatmul) return "batched matmuls are not merged";
    if (!std::ranges::equal(graph.operands(projection.matmul).subspan(2), others))
      return "the matmuls use different experts";
    if (graph.operand(projection.matmul, 0) != x) return "the matmuls read different values";
    if (graph.op(weight.node) != Op::kWeight && graph.op(weight.node) != Op::kSliceRows)
      return "a weight is neither a tensor of the model file nor rows of one";
    if (graph.type(weight).dtype != graph.type(first).dtype) return "the weights have different element types";
    if (single_user(graph, weight) != projection.matmul) return "a weight has other users and would be stored twice";
  }
  return {};
}

void merge_matmuls(ir::Graph& graph, std::span<const Projection> projections, std::int64_t unit) {
  const Projection first = projections[0];
  const std::int32_t layer = graph.layer(first.matmul);
  ir::PartsAttrs parts{.sizes = {}, .unit = unit};
  for (const Projection& projection : projections) parts.sizes.push_back(graph.type({projection.matmul, 0}).cols());
  const bool biased = std::ranges::all_of(projections, [](const auto& p) { return p.bias != ir::kNoNode; });

  const Value weight = concat(graph, projections, &Projection::matmul, parts, layer);
  Value whole = add_same_op(graph, first.matmul, {graph.operand(first.matmul, 0), weight});
  if (biased) {
    const Value bias = concat(graph, projections, &Projection::bias, parts, layer);
    whole = add_same_op(graph, first.bias, {whole, bias});
  }
  const NodeId split = graph.add(Op::kSplit, {whole}, parts, layer);
  for (std::uint32_t i = 0; i < projections.size(); ++i) {
    const Projection& projection = projections[i];
    graph.replace_uses(biased ? projection.result() : Value{projection.matmul, 0}, {split, i});
    if (biased) graph.remove(projection.bias);
    graph.remove(projection.matmul);
  }
}

}  // namespace forge::passes
