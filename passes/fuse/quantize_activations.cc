// quantize_activations: quantises the activations of a matmul where the target multiplies the weight's type with
// quantised activations; all matmuls of the same x and type share one quantize node. The pass cannot be skipped,
// because the target has no kernel for f32 activations in these cases.

#include <fmt/format.h>

#include <map>

#include "passes/passes.h"
#include "support/error.h"

namespace forge::passes {

bool quantize_activations(ir::Graph& graph, PassContext& context) {
  using ir::Op;
  std::map<std::pair<ir::Value, DType>, ir::Value> quantised;
  for (const ir::NodeId node : graph.nodes())
    if (graph.op(node) == Op::kQuantize)
      quantised.emplace(std::pair(graph.operand(node, 0), graph.type({node, 0}).dtype), ir::Value{node, 0});
  const auto before_choice = nodes_before_choices(graph);
  bool changed = false;
  for (const ir::NodeId node : graph.topological_order()) {
    if (!is_matmul(graph, node)) continue;
    const ir::Value x = graph.operand(node, 0);
    const DType weight = graph.type(graph.operand(node, 1)).dtype;
    const DType wanted = context.target.activation_type(weight, graph.type(x).cols(), before_choice[node]);
    if (graph.type(x).dtype == wanted || graph.type(x).dtype != DType::kF32) continue;
    if (!is_quantized_activation(wanted))
      throw Error(ErrorCode::kInternal,
                  fmt::format("target {} asks for activations of type {}", context.target.name(), dtype_name(wanted)),
                  "matmuls take f32, q8a_32, q8a_16 or q16a_16");
    auto found = quantised.find({x, wanted});
    if (found == quantised.end()) {
      const ir::NodeId quantize = graph.add(Op::kQuantize, {x}, ir::QuantizeAttrs{wanted}, graph.layer(node));
      found = quantised.emplace(std::pair(x, wanted), ir::Value{quantize, 0}).first;
    }
    graph.set_operand({node, 0}, found->second);
    changed = true;
  }
  return changed;
}

}  // namespace forge::passes
