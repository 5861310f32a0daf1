// fuse_qkv: a matmul that makes q, k or v goes with all that happens to its rows until they are stored or attended to:
// 1/rms, bias, split, norms of heads, RoPE, and the write into the KV cache. A factor on q is not on the list:
// canonicalise has moved it into attention, and no pass needs to know two forms of one thing. A norm that no matmul's
// group could take, for it is over whole rows of q or k, goes with what follows it.

#include <algorithm>

#include "passes/fuse/grow_group.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;
using ir::Value;

bool is_on_the_way(Op op) {
  switch (op) {
    case Op::kInvRmsScale:
    case Op::kRmsNorm:
    case Op::kLayerNorm:
    case Op::kAdd:
    case Op::kSplit:
    case Op::kRope:
      return true;
    default:
      return false;
  }
}

/// From k or v of a store back to its matmul, store excluded; empty when something else comes first.
std::vector<NodeId> chain_above(const ir::Graph& graph, Value value) {
  std::vector<NodeId> chain;
  for (NodeId node = value.node;; node = graph.operand(node, 0).node) {
    chain.push_back(node);
    if (graph.op(node) == Op::kMatmul) break;
    if (!is_on_the_way(graph.op(node))) return {};
  }
  std::ranges::reverse(chain);
  return chain;
}

/// The store whose k and v come from two matmuls of the same x, of which one is in the group: tries to take the other
/// one and the store.
void take_other_half(GroupGrower& grower, const ir::Graph& graph, std::vector<NodeId>& members,
                     const GroupGrower::Filter& filter) {
  const auto inside = [&](NodeId node) { return std::ranges::find(members, node) != members.end(); };
  for (const NodeId store : graph.nodes()) {
    if (graph.op(store) != Op::kKvStore || inside(store) || grower.taken(store)) continue;
    if (graph.operands(store).size() < 6) continue;  // keys alone
    const NodeId k = graph.operand(store, 1).node;
    const NodeId v = graph.operand(store, 2).node;
    if (inside(k) == inside(v)) continue;
    auto chain = chain_above(graph, graph.operand(store, inside(k) ? 2 : 1));
    if (chain.empty() || std::ranges::any_of(chain, [&](NodeId node) { return grower.taken(node); })) continue;
    if (graph.operand(chain.front(), 0) != graph.operand(members.front(), 0)) continue;
    chain.push_back(store);
    grower.extend(members, chain, filter);
    return;
  }
}

}  // namespace

bool fuse_qkv(ir::Graph& graph, PassContext& context) {
  GroupGrower grower(graph, context, "fuse_qkv");
  const auto through = [&](NodeId node) { return is_on_the_way(graph.op(node)); };
  const auto filter = [&](NodeId node) { return through(node) || graph.op(node) == Op::kKvStore; };
  const auto goal = [&](NodeId node) { return graph.op(node) == Op::kKvStore || graph.op(node) == Op::kAttention; };
  const auto starts = [&](NodeId node, auto... ops) {
    return ((graph.op(node) == ops) || ...) && !grower.taken(node) && leads_to(graph, node, through, goal);
  };
  bool changed = false;
  for (const NodeId node : grower.order()) {
    if (!starts(node, Op::kMatmul)) continue;
    auto members = grower.grow(node, filter);
    if (members.empty()) continue;
    take_other_half(grower, graph, members, filter);
    changed = grower.commit(members) || changed;
  }
  for (const NodeId node : grower.order())
    if (starts(node, Op::kRmsNorm, Op::kLayerNorm)) changed = grower.commit(grower.grow(node, filter)) || changed;
  return changed;
}

}  // namespace forge::passes
