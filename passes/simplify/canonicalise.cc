// canonicalise: rewrites scales into one form, so that later passes need not match several (rope* is any number of
// ropes, including none):
//   scale(x, 1)                                 =>  x
//   scale(scale(x, a), b)                       =>  scale(x, a*b)
//   attention(rope*(scale(q, a)), scale s)      =>  attention(rope*(q), scale a*s)   rotation and scaling commute
//   attention(scale(rope*(q), a), scale s)      =>  attention(rope*(q), scale a*s)
// Nodes that become unused are left to eliminate_dead_nodes.

#include <cmath>

#include "passes/passes.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;
using ir::Value;

float factor_of(const ir::Graph& graph, NodeId scale) {
  return graph.attrs_as<ir::ScaleAttrs>(scale).factor;
}

bool simplify_scale(ir::Graph& graph, PassContext& context, NodeId node) {
  const Value in = graph.operand(node, 0);
  const Value out{node, 0};
  if (graph.uses(out).empty() && !graph.is_output(out)) return false;  // already bypassed
  if (factor_of(graph, node) == 1.0F) {
    graph.replace_uses(out, in);
    return true;
  }
  if (graph.op(in.node) != Op::kScale) return false;
  const float product = factor_of(graph, in.node) * factor_of(graph, node);
  if (!std::isfinite(product) || product == 0) {
    note(context, "canonicalise", graph, node, "the product of two scales overflows or underflows f32");
    return false;
  }
  graph.set_operand({node, 0}, graph.operand(in.node, 0));
  graph.set_attrs(node, ir::ScaleAttrs{product});
  return true;
}

/// Moves one scale on the path of q into the attributes of the attention node. A rope in between must have no other
/// user, which would see the unscaled value.
bool fold_scale_of_q(ir::Graph& graph, PassContext& context, NodeId attention) {
  ir::Use use{attention, 0};
  Value q = graph.operand(attention, 0);
  bool shared = false;
  while (graph.op(q.node) == Op::kRope) {
    shared = shared || single_user(graph, q) == ir::kNoNode;
    use = {q.node, 0};
    q = graph.operand(q.node, 0);
  }
  if (graph.op(q.node) != Op::kScale) return false;
  if (shared) {
    note(context, "canonicalise", graph, attention, "the rope between q's scale and attention has other users");
    return false;
  }
  ir::AttentionAttrs attrs = graph.attrs_as<ir::AttentionAttrs>(attention);
  const float product = attrs.scale * factor_of(graph, q.node);
  if (!std::isfinite(product)) {
    note(context, "canonicalise", graph, attention, "the scale of the scores overflows f32");
    return false;
  }
  attrs.scale = product;
  graph.set_operand(use, graph.operand(q.node, 0));
  graph.set_attrs(attention, attrs);
  return true;
}

}  // namespace

bool canonicalise(ir::Graph& graph, PassContext& context) {
  bool changed = false;
  for (const NodeId node : graph.topological_order())
    if (graph.op(node) == Op::kScale) changed = simplify_scale(graph, context, node) || changed;
  for (const NodeId node : graph.nodes())
    if (graph.op(node) == Op::kAttention)
      while (fold_scale_of_q(graph, context, node)) changed = true;
  return changed;
}

}  // namespace forge::passes
