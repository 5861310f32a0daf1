// fuse_qkv: a matmul that computes q, k or v becomes one group with everything that is done to its rows before
// attention: 1/rms, bias, split, QK-norm, RoPE and the write into the KV cache.
//   matmul -> inv_rms_scale -> split -> rope q               =>    one group; attention stays outside
//                                   \-> rope k, v -> kv_store
// A scale of q is not in the list, because canonicalise has moved it into attention. Where the target does not accept
// norms in a matmul's group, the split and what follows it become a second group, which loads rows:
//   split -> rms_norm q -> rope q                            =>    one group
//        \-> rms_norm k -> rope k -> kv_store
// A norm that is in neither, such as a QK-norm over whole rows of q or k, starts a group of its own.

#include <algorithm>

#include "passes/fuse/grow_group.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;

/// The group of a split after the matmul of `members` with the norms, rotations and store behind it; empty if the
/// matmul's group has these norms itself, or if the target accepts no such group.
std::vector<NodeId> heads_after(GroupGrower& grower, const ir::Graph& graph, const std::vector<NodeId>& members,
                                const GroupGrower::Filter& filter) {
  const auto is_norm = [&](NodeId node) { return graph.op(node) == Op::kRmsNorm; };
  const auto split = std::ranges::find_if(members, [&](NodeId node) { return graph.op(node) == Op::kSplit; });
  if (split == members.end() || std::ranges::any_of(members, is_norm)) return {};
  auto heads = grower.grow(*split, filter);
  return std::ranges::count_if(heads, is_norm) > 1 ? heads : std::vector<NodeId>();
}

}  // namespace

bool fuse_qkv(ir::Graph& graph, PassContext& context) {
  GroupGrower grower(graph, context, "fuse_qkv");
  const auto through = [&](NodeId node) { return is_qkv_op(graph.op(node)); };
  const auto filter = [&](NodeId node) { return through(node) || graph.op(node) == Op::kKvStore; };
  const auto goal = [&](NodeId node) {
    return graph.op(node) == Op::kKvStore || graph.op(node) == Op::kAttention || graph.op(node) == Op::kSelectKeys;
  };
  const auto starts = [&](NodeId node, auto... ops) {
    return ((graph.op(node) == ops) || ...) && !grower.taken(node) && leads_to(graph, node, through, goal);
  };
  bool changed = false;
  for (const NodeId node : grower.order()) {
    if (!starts(node, Op::kMatmul)) continue;
    auto members = grower.grow(node, filter);
    if (members.empty()) continue;
    if (const auto heads = heads_after(grower, graph, members, filter); !heads.empty()) {
      const auto before = [&](NodeId other) { return filter(other) && graph.op(other) != Op::kSplit; };
      changed = grower.commit(grower.grow(node, before)) || changed;
      changed = grower.commit(heads) || changed;
      continue;
    }
    changed = grower.commit(members) || changed;
  }
  for (const NodeId node : grower.order())
    if (starts(node, Op::kRmsNorm, Op::kLayerNorm)) changed = grower.commit(grower.grow(node, filter)) || changed;
  return changed;
}

}  // namespace forge::passes
