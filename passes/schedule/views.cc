#include "passes/schedule/views.h"

namespace forge::passes {

using ir::NodeId;
using ir::Op;
using ir::Value;

Views::Views(const ir::Graph& graph, const Target& target) : is_view_(graph.id_bound()) {
  if (!target.views_columns()) return;
  for (const NodeId node : graph.nodes()) {
    if (graph.op(node) != Op::kSplit || graph.group(node) != ir::kNoGroup) continue;
    const Value whole = graph.operand(node, 0);
    bool output = graph.is_output(whole);
    for (std::uint32_t i = 0; i < graph.results(node).size(); ++i) output = output || graph.is_output({node, i});
    is_view_[node] = graph.attrs_as<ir::PartsAttrs>(node).unit == 0 && graph.type(whole).shape.size() == 2 && !output &&
                     runs_in_step(graph, whole.node);
  }
}

Value Views::base(const ir::Graph& graph, Value value) const {
  while (holds(value.node)) value = graph.operand(value.node, 0);
  return value;
}

std::vector<ir::Use> Views::uses(const ir::Graph& graph, Value value) const {
  std::vector<ir::Use> out;
  for (const ir::Use& use : graph.uses(value)) {
    if (!holds(use.node)) {
      out.push_back(use);
      continue;
    }
    for (std::uint32_t i = 0; i < graph.results(use.node).size(); ++i) {
      const auto of_part = uses(graph, {use.node, i});
      out.insert(out.end(), of_part.begin(), of_part.end());
    }
  }
  return out;
}

}  // namespace forge::passes
