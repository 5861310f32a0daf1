// merge_qkv: matmuls of the same x become one matmul and a split; usually these are q, k and v of an attention layer.
// Only weights of the same element type are merged with each other (Q4_K_M files have v in Q6_K beside q and k in
// Q4_K). Gate and up of a GLU are left to merge_gate_up. The delta net's q, k, v, gate z, alpha and beta are merged
// too.

#include <algorithm>
#include <map>

#include "passes/fuse/merge_matmuls.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;

/// True if a GLU of this projection and another one uses its result.
bool feeds_glu(const ir::Graph& graph, const Projection& projection) {
  const auto is_projection = [&](NodeId node) {
    if (graph.op(node) == Op::kAdd) node = graph.operand(node, 0).node;
    return is_matmul(graph, node);
  };
  const auto uses = graph.uses(projection.result());
  return std::ranges::any_of(uses, [&](const ir::Use& use) {
    return graph.op(use.node) == Op::kGlu && is_projection(graph.operand(use.node, 1 - use.operand).node);
  });
}

/// True if only elementwise functions read the value: its columns may lie anywhere in a merged matmul's.
bool only_elementwise(const ir::Graph& graph, ir::Value value) {
  return !graph.is_output(value) && std::ranges::all_of(graph.uses(value), [&](const ir::Use& use) {
    return ir::op_def(graph.op(use.node)).elementwise;
  });
}

/// All matmuls of x by the element type of their weights, in order of node ids; those whose number of columns the
/// target merges only behind others come last. Left out are gate and up of a GLU, and matmuls whose number of columns
/// the target does not merge (such as a router's).
std::map<DType, std::vector<Projection>> siblings_of(const ir::Graph& graph, ir::Value x, const Target& target) {
  std::map<DType, std::vector<Projection>> by_type;
  for (const ir::Use& use : graph.uses(x)) {
    if (graph.op(use.node) != Op::kMatmul || use.operand != 0) continue;
    const bool anywhere = target.merges_columns(graph.type({use.node, 0}).cols());
    if (!anywhere && !(target.merges_last() && only_elementwise(graph, {use.node, 0}))) continue;
    const Projection projection = projection_of(graph, use.node);
    if (!feeds_glu(graph, projection)) by_type[graph.type(graph.operand(use.node, 1)).dtype].push_back(projection);
  }
  for (auto& [type, siblings] : by_type)
    std::ranges::stable_partition(
        siblings, [&](const auto& one) { return target.merges_columns(graph.type({one.matmul, 0}).cols()); });
  return by_type;
}

}  // namespace

bool merge_qkv(ir::Graph& graph, PassContext& context) {
  bool changed = false;
  for (const NodeId node : graph.topological_order()) {
    if (!graph.alive(node) || graph.op(node) != Op::kMatmul) continue;
    const auto by_type = siblings_of(graph, graph.operand(node, 0), context.target);
    const auto own = by_type.find(graph.type(graph.operand(node, 1)).dtype);
    // All siblings of one type are merged when the first of them is visited.
    if (own == by_type.end() || std::ranges::min(own->second, {}, &Projection::matmul).matmul != node) continue;
    if (by_type.size() > 1)
      note(context, "merge_qkv", graph, node, "matmuls of one value have weights of different element types");
    if (own->second.size() < 2) continue;
    if (const std::string why = merge_refusal(graph, own->second); !why.empty()) {
      note(context, "merge_qkv", graph, node, why);
      continue;
    }
    merge_matmuls(graph, own->second, 0);
    changed = true;
  }
  return changed;
}

}  // namespace forge::passes
