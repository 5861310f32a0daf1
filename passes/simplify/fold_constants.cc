// fold_constants: a node whose operands are all constants (or that has none) is replaced by a constant, computed with
// its scalar reference. RoPE's frequencies are the main case. Weights do not count as constants: their bytes never
// become part of a plan.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/interpreter.h"
#include "passes/passes.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;

/// Larger results are not folded, because constants are part of the graph's text in the plan.
constexpr std::int64_t kElementsMax = 1 << 16;

ir::Tensor tensor_of(const ir::TensorType& type) {
  ir::Tensor tensor{.type = type};
  for (const ir::Dim& dim : type.shape) tensor.dims.push_back(dim.value);
  tensor.f32.resize(static_cast<std::size_t>(type.elements({})));
  return tensor;
}

/// True if the node can be computed now: it has a reference, no effect, and only constants as operands.
bool only_constant_operands(const ir::Graph& graph, NodeId node) {
  const ir::OpDef& def = ir::op_def(graph.op(node));
  return def.reference != nullptr && !def.has_effect && runs_in_step(graph, node) &&
         std::ranges::all_of(graph.operands(node),
                             [&](const ir::Value& v) { return graph.op(v.node) == Op::kConstant; });
}

/// Why the results cannot be constants; empty when they can.
std::string refusal(const ir::Graph& graph, NodeId node) {
  for (const ir::TensorType& type : graph.results(node)) {
    if (type.dtype != DType::kF32) return "a result is not f32";
    if (!std::ranges::all_of(type.shape, &ir::Dim::is_constant)) return "a dimension is known at run time only";
    if (type.shape.empty()) return "a result has no dimensions";
    if (type.elements({}) > kElementsMax) return fmt::format("more than {} elements", kElementsMax);
  }
  return {};
}

/// Runs the node's scalar reference.
std::vector<ir::Tensor> evaluate(const ir::Graph& graph, NodeId node) {
  std::vector<ir::Tensor> inputs;
  for (const ir::Value& operand : graph.operands(node)) {
    inputs.push_back(tensor_of(graph.type(operand)));
    inputs.back().f32 = graph.attrs_as<ir::ConstantAttrs>(operand.node).values;
  }
  std::vector<const ir::Tensor*> pointers;
  for (const ir::Tensor& input : inputs) pointers.push_back(&input);
  std::vector<ir::Tensor> outputs;
  for (const ir::TensorType& type : graph.results(node)) outputs.push_back(tensor_of(type));
  ir::EvalContext nothing;
  ir::op_def(graph.op(node)).reference(graph.attrs(node), pointers, outputs, nothing);
  return outputs;
}

}  // namespace

bool fold_constants(ir::Graph& graph, PassContext& context) {
  bool changed = false;
  for (const NodeId node : graph.topological_order()) {
    if (!only_constant_operands(graph, node)) continue;
    if (const std::string why = refusal(graph, node); !why.empty()) {
      note(context, "fold_constants", graph, node, why);
      continue;
    }
    auto outputs = evaluate(graph, node);
    const bool finite = std::ranges::all_of(outputs, [](const ir::Tensor& tensor) {
      return std::ranges::all_of(tensor.f32, [](float x) { return std::isfinite(x); });
    });
    if (!finite) {
      note(context, "fold_constants", graph, node, "a value is not finite");
      continue;
    }
    for (std::uint32_t i = 0; i < outputs.size(); ++i) {
      ir::Tensor& output = outputs[i];
      const NodeId constant =
          graph.add(Op::kConstant, {}, ir::ConstantAttrs{std::move(output.f32), output.type}, graph.layer(node));
      graph.replace_uses({node, i}, {constant, 0});
    }
    graph.remove(node);
    changed = true;
  }
  return changed;
}

}  // namespace forge::passes
