// split_kv_store: a store whose k and v come from two matmuls becomes two, so that each can join the group of its own
// matmul; as one node it could join neither. Such layers are those whose weights have different types, which merge_qkv
// does not merge: in Q4_K_M files v is in Q6_K in half of the layers.
//   kv_store(state, k, v)   =>   kv_store(kv_store(state, k) keys, v) values

#include "passes/passes.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;
using ir::Value;

/// The matmul that makes `value`, with nothing but what fuse_qkv takes between them; kNoNode: there is none.
NodeId matmul_of(const ir::Graph& graph, Value value) {
  NodeId node = value.node;
  while (is_qkv_op(graph.op(node))) node = graph.operand(node, 0).node;
  return graph.op(node) == Op::kMatmul ? node : ir::kNoNode;
}

}  // namespace

bool split_kv_store(ir::Graph& graph, PassContext& context) {
  bool changed = false;
  for (const NodeId store : graph.topological_order()) {
    constexpr std::size_t kWithBoth = 6;
    if (graph.op(store) != Op::kKvStore || graph.operands(store).size() < kWithBoth) continue;
    const auto k = matmul_of(graph, graph.operand(store, 1)), v = matmul_of(graph, graph.operand(store, 2));
    std::string_view refusal;
    if (k == ir::kNoNode || v == ir::kNoNode)
      refusal = "k or v does not come from a matmul";
    else if (k == v)
      refusal = "one matmul makes k and v";
    if (!refusal.empty()) {
      note(context, "split_kv_store", graph, store, refusal);
      continue;
    }
    auto attrs = graph.attrs_as<ir::KvStoreAttrs>(store);
    const auto half = [&](Value state, std::size_t rows, ir::KvHalf which) {
      attrs.half = which;
      return Value{graph.add(Op::kKvStore,
                             {state, graph.operand(store, rows), graph.operand(store, 3), graph.operand(store, 4),
                              graph.operand(store, 5)},
                             attrs, graph.layer(store)),
                   0};
    };
    const auto keys = half(graph.operand(store, 0), 1, ir::KvHalf::kKeys);
    graph.replace_uses({store, 0}, half(keys, 2, ir::KvHalf::kValues));
    graph.remove(store);
    changed = true;
  }
  return changed;
}

}  // namespace forge::passes
