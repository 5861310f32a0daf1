#include "passes/give_hidden.h"

#include <map>

#include "passes/passes.h"
#include "support/error.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;
using ir::Value;

/// The rows that the head multiplies, under what may stand between its matmul and the logits.
Value rows_before_head(const ir::Graph& graph, Value logits) {
  while (graph.op(logits.node) == Op::kScale || graph.op(logits.node) == Op::kSoftcap ||
         (graph.op(logits.node) == Op::kAdd && is_weight(graph, graph.operand(logits.node, 1))))
    logits = graph.operand(logits.node, 0);
  if (graph.op(logits.node) != Op::kMatmul)
    throw Error(ErrorCode::kModelUnsupported, "no embeddings: the model's logits come from no matmul");
  return graph.operand(logits.node, 0);
}

}  // namespace

ir::Graph give_hidden(const ir::Graph& graph) {
  ir::Graph out;
  std::map<NodeId, NodeId> copies;
  const auto copy_of = [&](Value value) { return Value{copies.at(value.node), value.result}; };
  for (const NodeId node : graph.topological_order()) {
    std::vector<Value> operands;
    for (const Value& operand : graph.operands(node)) operands.push_back(copy_of(operand));
    copies[node] = out.add(graph.op(node), std::move(operands), graph.attrs(node), graph.layer(node));
  }
  for (const auto& [name, value] : graph.outputs()) {
    const bool logits = name == "logits";
    out.add_output(logits ? std::string(kHiddenOutput) : name,
                   copy_of(logits ? rows_before_head(graph, value) : value));
  }
  return out;
}

}  // namespace forge::passes
