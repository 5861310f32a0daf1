// eliminate_dead_nodes: removes nodes that no output needs. A KV store stays, because its state leads to an output; the
// verifier (IR-009) ensures that every store's state does.

#include "passes/passes.h"

namespace forge::passes {

bool eliminate_dead_nodes(ir::Graph& graph, PassContext&) {
  const auto order = graph.topological_order();
  std::vector<bool> live(graph.id_bound());
  for (const auto& output : graph.outputs()) live[output.value.node] = true;
  bool changed = false;
  for (std::size_t i = order.size(); i-- > 0;) {
    const ir::NodeId node = order[i];
    if (live[node]) {
      for (const ir::Value& operand : graph.operands(node)) live[operand.node] = true;
    } else {
      graph.remove(node);
      changed = true;
    }
  }
  return changed;
}

}  // namespace forge::passes
