// choose_rope_factors: selects the factors of LongRoPE. A model with LongRoPE has two lists of factors, one for
// contexts up to the length it was first trained with and one for longer contexts. The portable graph fits any context
// and has both; a program is compiled for one context length n_ctx:
//   rope_freqs(short, long) {original_context = n}   =>  rope_freqs(n_ctx > n ? long : short)
// The pass cannot be skipped: no target has a kernel that chooses at run time.

#include "passes/passes.h"

namespace forge::passes {

bool choose_rope_factors(ir::Graph& graph, PassContext& context) {
  bool changed = false;
  for (const ir::NodeId node : graph.topological_order()) {
    if (graph.op(node) != ir::Op::kRopeFreqs || graph.operands(node).size() < 2) continue;
    const auto attrs = graph.attrs_as<ir::RopeFreqsAttrs>(node);
    const ir::Value factors = graph.operand(node, context.context > attrs.original_context ? 1 : 0);
    const ir::NodeId chosen = graph.add(ir::Op::kRopeFreqs, {factors}, attrs, graph.layer(node));
    graph.replace_uses({node, 0}, {chosen, 0});
    remove_with_unused_operands(graph, node);
    changed = true;
  }
  return changed;
}

}  // namespace forge::passes
