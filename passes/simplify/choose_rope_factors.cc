// choose_rope_factors: a model with LongRoPE has two lists of factors, for contexts up to the one it was first trained
// with and for longer ones. The portable graph names both, for it is for any context; a program is for one.
//   rope_freqs(short, long) {original_context = n}   ->  rope_freqs(context > n ? long : short)
// Required: targets have no kernel that chooses.

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
