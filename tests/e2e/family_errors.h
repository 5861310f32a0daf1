#pragma once
// How far a changed graph of a family's model is from NumPy's logits. Tests use it to prove that the comparison notices
// each part of a model.

#include "tests/e2e/family_models.h"

namespace forge::tests {

inline constexpr double kNoticed = 1e-4;  ///< lower bound of the effect of a removed part

inline ir::Graph family_graph(const FamilyJson& model) {
  return TinyModel(FileImage{family_gguf(model)}).portable().graph;
}

/// NMSE of the interpreter's logits of `graph` against the fixture's.
inline double error_of(const FamilyJson& model, const ir::Graph& graph) {
  const TinyModel tiny(FileImage{family_gguf(model)});
  return nmse(kept_rows(tiny.reference(graph, family_tokens(), false)), family_logits(model));
}

/// The graph without the nodes of `op` that `which` selects: their users read the node's first operand instead.
template <class Which>
ir::Graph without(ir::Graph graph, ir::Op op, Which which) {
  for (const auto node : graph.topological_order())
    if (graph.op(node) == op && which(graph, node)) graph.replace_uses({node, 0}, graph.operand(node, 0));
  return graph;
}
inline ir::Graph without(ir::Graph graph, ir::Op op) {
  return without(std::move(graph), op, [](const ir::Graph&, ir::NodeId) { return true; });
}

}  // namespace forge::tests
