// rotate_keys: where the cache has few bits, keys are stored transformed by a Hadamard matrix, and queries are
// transformed likewise, so that their dots stay the same:
//   attention(q, kv_store(state, k, v))   =>   attention(hadamard(q), kv_store(state, hadamard(k), v))
// A block of 32 columns has one scale, which its largest one decides; transformed, all of them share what that one had
// (QuaRot, arXiv 2404.00456). Values are not transformed: that would take a step behind attention. Negative
// log-likelihood of SmolLM2-135M-Instruct against an f16 cache, in NumPy, with keys alone in q4_0: +9.7 %, and +2.3 %
// transformed; q8_0 differs by 0.001 either way.

#include <map>

#include "passes/passes.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;
using ir::Value;

/// True of states with heads of whole runs. Others, and rows that heads share (latents, keys of sparse attention), have
/// no types of few bits; kernels refuse them.
bool has_runs(const ir::Graph& graph, Value state) {
  while (graph.op(state.node) == Op::kKvStore) state = graph.operand(state.node, 0);
  const auto& kv = graph.attrs_as<ir::KvStateAttrs>(state.node);
  return kv.shared_row == 0 && kv.head_dim % ir::kHadamardColumns == 0;
}

/// The operand that is transformed, of stores of keys and of what reads them; kNoOperand: the node has none.
constexpr std::uint32_t kNoOperand = ~std::uint32_t{0};
std::uint32_t rotated_operand(const ir::Graph& graph, NodeId node) {
  if (graph.op(node) == Op::kKvStore && has_runs(graph, graph.operand(node, 0)) &&
      graph.attrs_as<ir::KvStoreAttrs>(node).half != ir::KvHalf::kValues)
    return 1;
  return graph.op(node) == Op::kAttention && has_runs(graph, graph.operand(node, 1)) ? 0 : kNoOperand;
}

}  // namespace

bool rotate_keys(ir::Graph& graph, PassContext& context) {
  if (!context.target.rotates_keys()) return false;
  std::map<Value, Value> rotated;
  for (const NodeId node : graph.topological_order()) {
    const auto operand = rotated_operand(graph, node);
    if (operand == kNoOperand) continue;
    const auto value = graph.operand(node, operand);
    if (graph.op(value.node) == Op::kHadamard) continue;
    const auto [at, added] = rotated.try_emplace(value);
    if (added) at->second = Value{graph.add(Op::kHadamard, {value}, {}, graph.layer(node)), 0};
    graph.set_operand({node, operand}, at->second);
  }
  return !rotated.empty();
}

}  // namespace forge::passes
