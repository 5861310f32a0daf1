// Steps of the CPU with recurrent state. Each function copies the node's attributes into the body of a plan's step.

#include "codegen/cpu/cpu_chooser.h"

namespace forge::codegen {

std::uint16_t CpuChooser::recurrent_state(ir::NodeId node, std::int64_t layer) {
  const auto group = static_cast<std::uint16_t>(recurrent_state_of(graph_, node).group);
  return role(plan::operand_at(plan::Space::Recurrent, group, static_cast<std::uint64_t>(layer)));
}

/// nodes: the convolution, and optionally the activation of its result.
plan::ShortConvT CpuChooser::short_conv(std::span<const ir::NodeId> nodes) {
  const auto node = nodes[0];
  const auto kernel = graph_.operand(node, 1);
  plan::ShortConvT out;
  out.x = role(graph_.operand(node, 0));
  out.kernel = role(kernel);
  if (graph_.operands(node).size() > 2 + ir::kStateOperands) out.bias = role(graph_.operand(node, 2));
  out.state = recurrent_state(node, graph_.attrs_as<ir::ShortConvAttrs>(node).layer);
  out.out = role(ir::Value{nodes.back(), 0});
  out.columns = graph_.type({node, 0}).cols();
  out.taps = static_cast<std::int32_t>(graph_.type(kernel).cols());
  if (nodes.size() > 1)
    out.activation =
        static_cast<std::uint8_t>(ir::function_call(graph_.op(nodes[1]), graph_.attrs(nodes[1]))->function);
  return out;
}

plan::DeltaRuleT CpuChooser::delta_rule(ir::NodeId node) {
  const auto& delta = graph_.attrs_as<ir::DeltaRuleAttrs>(node);
  plan::DeltaRuleT out;
  out.q = role(graph_.operand(node, 0));
  out.k = role(graph_.operand(node, 1));
  out.v = role(graph_.operand(node, 2));
  out.decay = role(graph_.operand(node, 3));
  out.beta = role(graph_.operand(node, 4));
  out.state = recurrent_state(node, delta.layer);
  out.out = role(ir::Value{node, 0});
  out.heads = static_cast<std::int32_t>(delta.heads);
  out.key_heads = static_cast<std::int32_t>(delta.key_heads);
  out.key_dim = static_cast<std::int32_t>(delta.key_dim);
  out.value_dim = static_cast<std::int32_t>(delta.value_dim);
  out.interleaved = delta.interleaved == 1;
  out.decay_each_channel = graph_.type(graph_.operand(node, 3)).cols() != delta.heads;
  out.scale = delta.scale;
  out.norm_eps = delta.norm_eps;
  return out;
}

plan::SelectiveScanT CpuChooser::selective_scan(ir::NodeId node) {
  const auto& scan = graph_.attrs_as<ir::SelectiveScanAttrs>(node);
  plan::SelectiveScanT out;
  out.x = role(graph_.operand(node, 0));
  out.dt = role(graph_.operand(node, 1));
  out.a = role(graph_.operand(node, 2));
  out.b = role(graph_.operand(node, 3));
  out.c = role(graph_.operand(node, 4));
  out.d = role(graph_.operand(node, 5));
  out.state = recurrent_state(node, scan.layer);
  out.out = role(ir::Value{node, 0});
  out.heads = static_cast<std::int32_t>(scan.heads);
  out.head_dim = static_cast<std::int32_t>(scan.head_dim);
  out.state_dim = static_cast<std::int32_t>(scan.state_dim);
  out.groups = static_cast<std::int32_t>(scan.groups);
  out.a_each_state = graph_.type(graph_.operand(node, 2)).shape.size() == 2;
  return out;
}

plan::Rwkv7T CpuChooser::rwkv7(ir::NodeId node) {
  const auto& rwkv = graph_.attrs_as<ir::Rwkv7Attrs>(node);
  plan::Rwkv7T out;
  out.r = role(graph_.operand(node, 0));
  out.w = role(graph_.operand(node, 1));
  out.k = role(graph_.operand(node, 2));
  out.v = role(graph_.operand(node, 3));
  out.a = role(graph_.operand(node, 4));
  out.b = role(graph_.operand(node, 5));
  out.state = recurrent_state(node, rwkv.layer);
  out.out = role(ir::Value{node, 0});
  out.heads = static_cast<std::int32_t>(rwkv.heads);
  out.head_dim = static_cast<std::int32_t>(rwkv.head_dim);
  return out;
}

}  // namespace forge::codegen
