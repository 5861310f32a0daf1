#pragma once
// Graphs that apply functions of kernels/elementwise to a model's logits. The functions come from the table itself, so
// a new row of the table is tested without a change here.

#include <functional>
#include <string>
#include <vector>

#include "ir/builder.h"

namespace forge::tests {

/// Valid parameters for `function`, as many as it has.
inline std::vector<float> parameters_for(elementwise::Function function) {
  const std::vector<float> all{1.25F, 0.75F, 0.5F, -0.125F};
  const auto count = elementwise::function_def(function).parameter_count;
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// All activations of the table.
inline std::vector<ir::Activation> all_activations() {
  std::vector<ir::Activation> out;
#define FORGE_ONE(name, Name, ...) out.push_back(ir::Activation::k##Name);
  FORGE_ELEMENTWISE_FUNCTIONS(FORGE_NO_ROW, FORGE_ONE)
#undef FORGE_ONE
  return out;
}

/// The parameters as the fixed-size array of the IR, unused entries 0.
inline elementwise::Parameters padded(const std::vector<float>& parameters) {
  elementwise::Parameters out{};
  for (std::size_t i = 0; i < parameters.size(); ++i) out[i] = parameters[i];
  return out;
}

/// A unary function by its name in the table; `apply` builds f(x).
struct NamedFunction {
  std::string name;
  std::function<ir::Value(ir::Builder&, ir::Value)> apply;
};
/// All unary functions of the table: ops of their own and activations.
inline std::vector<NamedFunction> unary_functions() {
  std::vector<NamedFunction> out;
  for (std::size_t number = 0; number < elementwise::kFunctionCount; ++number) {
    const auto& def = elementwise::function_def(*elementwise::find_function(number));
    if (def.is_activation || !elementwise::is_unary(def.form)) continue;
    const auto op = ir::find_op(def.name)->op;
    out.push_back({std::string(def.name), [op, function = def.function](ir::Builder& b, ir::Value x) {
                     return b.function(op, {x}, parameters_for(function));
                   }});
  }
  for (const auto activation : all_activations()) {
    const auto function = ir::function_of(activation);
    if (!elementwise::is_unary(elementwise::function_def(function).form)) continue;
    out.push_back({std::string(elementwise::function_def(function).name), [=](ir::Builder& b, ir::Value x) {
                     return b.activate(x, activation, padded(parameters_for(function)));
                   }});
  }
  return out;
}

/// `graph` with its output "logits" replaced by change(builder, logits).
template <class Change>
ir::Graph on_logits(ir::Graph graph, Change change) {
  ir::Builder b(graph);
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) {
    const auto [name, value] = graph.outputs()[i];
    if (name == "logits") graph.set_output(i, name, change(b, value));
  }
  return graph;
}

/// Applies all unary functions one after the other, each followed by a product and a sum with a vector.
inline ir::Graph with_all_functions(const ir::Graph& graph) {
  return on_logits(graph, [&](ir::Builder& b, ir::Value x) {
    const auto cols = b.graph().type(x).cols();
    std::vector<float> values(static_cast<std::size_t>(cols));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.5F + static_cast<float>(i % 7) / 4;
    const auto vector = b.constant(values, {cols});
    for (const auto& function : unary_functions()) x = b.add(b.mul(function.apply(b, x), vector), vector);
    return x;
  });
}

}  // namespace forge::tests
