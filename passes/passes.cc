#include "passes/passes.h"

#include <fmt/format.h>

#include <ranges>

namespace forge::passes {

using ir::Op;

void note(PassContext& context, std::string_view pass, const ir::Graph& graph, ir::NodeId node,
          std::string_view reason) {
  const std::int32_t layer = graph.layer(node);
  const std::string where = layer == ir::kNoLayer ? std::string() : fmt::format("layer {}: ", layer);
  context.notes.push_back(fmt::format("{}: {}{}: {}", pass, where, ir::op_def(graph.op(node)).name, reason));
}

ir::NodeId single_user(const ir::Graph& graph, ir::Value value) {
  const auto uses = graph.uses(value);
  return uses.size() == 1 && !graph.is_output(value) ? uses[0].node : ir::kNoNode;
}

bool runs_in_step(const ir::Graph& graph, ir::NodeId node) {
  switch (graph.op(node)) {
    case Op::kInput:
    case Op::kWeight:
    case Op::kConstant:
    case Op::kKvState:
    case Op::kRecurrentState:
    case Op::kConcatRows:
    case Op::kSliceRows:
      return false;
    default:
      return true;
  }
}

bool is_qkv_op(Op op) {
  switch (op) {
    case Op::kInvRmsScale:
    case Op::kRmsNorm:
    case Op::kLayerNorm:
    case Op::kAdd:
    case Op::kSplit:
    case Op::kRope:
    case Op::kHadamard:
      return true;
    default:
      return false;
  }
}

bool is_matmul(Op op) {
  return op == Op::kMatmul || op == Op::kExpertMatmul || op == Op::kBatchedMatmul;
}
bool is_matmul(const ir::Graph& graph, ir::NodeId node) {
  return is_matmul(graph.op(node));
}

std::vector<bool> nodes_before_choices(const ir::Graph& graph) {
  std::vector<bool> before(graph.id_bound());
  for (const ir::NodeId node : std::views::reverse(graph.topological_order())) {
    const bool chooses = graph.op(node) == ir::Op::kRoute || graph.op(node) == ir::Op::kSelectKeys;
    if (!chooses && !before[node]) continue;
    for (const ir::Value operand : graph.operands(node)) before[operand.node] = true;
  }
  return before;
}

bool is_weight(const ir::Graph& graph, ir::Value value) {
  const Op op = graph.op(value.node);
  return op == Op::kWeight || op == Op::kConcatRows || op == Op::kSliceRows;
}

/// A worklist: removing a node may leave its operands without users.
void remove_with_unused_operands(ir::Graph& graph, ir::NodeId node) {
  std::vector<ir::NodeId> open{node};
  while (!open.empty()) {
    const ir::NodeId dead = open.back();
    open.pop_back();
    if (!graph.alive(dead) || !graph.users(dead).empty()) continue;
    bool is_output = false;
    for (const auto& output : graph.outputs()) is_output = is_output || output.value.node == dead;
    if (is_output) continue;
    for (const ir::Value& operand : graph.operands(dead)) open.push_back(operand.node);
    graph.remove(dead);
  }
}

}  // namespace forge::passes
