// eliminate_common_subexpressions: of nodes with the same op, attributes and operands, the first one replaces all
// others. Ops with effects (KV stores) are never merged. Replaced nodes are left to eliminate_dead_nodes.

#include <map>
#include <utility>

#include "passes/passes.h"

namespace forge::passes {

bool eliminate_common_subexpressions(ir::Graph& graph, PassContext&) {
  using Key = std::pair<ir::Op, std::vector<ir::Value>>;
  std::map<Key, std::vector<ir::NodeId>> known;
  bool changed = false;
  for (const ir::NodeId node : graph.topological_order()) {
    const auto outputs = static_cast<std::uint32_t>(graph.results(node).size());
    if (ir::op_def(graph.op(node)).has_effect) continue;
    const auto operands = graph.operands(node);
    auto& twins = known[{graph.op(node), {operands.begin(), operands.end()}}];
    ir::NodeId twin = ir::kNoNode;
    for (const ir::NodeId other : twins)
      if (graph.attrs(other) == graph.attrs(node)) twin = other;
    if (twin == ir::kNoNode) {
      twins.push_back(node);
      continue;
    }
    for (std::uint32_t i = 0; i < outputs; ++i) {
      const ir::Value value{node, i};
      if (graph.uses(value).empty() && !graph.is_output(value)) continue;
      graph.replace_uses(value, {twin, i});
      changed = true;
    }
  }
  return changed;
}

}  // namespace forge::passes
