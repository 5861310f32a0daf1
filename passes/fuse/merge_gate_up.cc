// merge_gate_up: the gate and up matmuls of a GLU become one matmul, whose columns alternate between gate and up in
// runs of the target's interleave u. The tile of a kernel then holds gate and up of the same columns, and the GLU can
// be its epilogue:
//   columns of the merged weight:  g0 .. g(u-1)  u0 .. u(u-1)  gu .. g(2u-1)  uu .. u(2u-1)  ...

#include <fmt/format.h>
#include <array>

#include "passes/fuse/merge_matmuls.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;

/// The matmul (with its bias) that computes a GLU's operand; a Projection without a matmul if something else does.
Projection operand_projection(const ir::Graph& graph, NodeId glu, std::size_t operand) {
  ir::NodeId node = graph.operand(glu, operand).node;
  if (graph.op(node) == Op::kAdd || graph.op(node) == Op::kExpertAdd) node = graph.operand(node, 0).node;
  if (!is_matmul(graph, node)) return {};
  const Projection projection = projection_of(graph, node);
  return projection.result() == graph.operand(glu, operand) ? projection : Projection{};
}

/// Why the GLU's matmuls cannot be merged; empty if they can. Sets `unit` to the target's interleave.
std::string refusal(const ir::Graph& graph, NodeId glu, const std::array<Projection, 2>& parts, const Target& target,
                    std::int64_t& unit) {
  for (const Projection& part : parts) {
    if (part.matmul == ir::kNoNode) return "an operand is not a matmul";
    if (single_user(graph, part.result()) != glu) return "an operand has other users";
  }
  if (parts[0].matmul == parts[1].matmul) return "gate and up are the same value";
  if ((parts[0].bias == ir::kNoNode) != (parts[1].bias == ir::kNoNode)) return "only one of gate and up has a bias";
  if (std::string why = merge_refusal(graph, parts); !why.empty()) return why;
  const std::int64_t n = graph.type(parts[0].result()).cols();
  unit = target.glu_interleave(graph.type(graph.operand(parts[0].matmul, 1)).dtype, n);
  if (unit <= 0) return "the target does not merge gate and up";
  if (n % unit != 0) return fmt::format("{} columns are not a multiple of the target's interleave of {}", n, unit);
  return {};
}

}  // namespace

bool merge_gate_up(ir::Graph& graph, PassContext& context) {
  bool changed = false;
  for (const NodeId glu : graph.topological_order()) {
    if (!graph.alive(glu) || graph.op(glu) != Op::kGlu) continue;
    const std::array parts{operand_projection(graph, glu, 0), operand_projection(graph, glu, 1)};
    const NodeId gate = graph.operand(glu, 0).node;
    if (graph.op(gate) == Op::kSplit && gate == graph.operand(glu, 1).node) continue;  // merged already
    std::int64_t unit = 0;
    if (const std::string why = refusal(graph, glu, parts, context.target, unit); !why.empty()) {
      note(context, "merge_gate_up", graph, glu, why);
      continue;
    }
    merge_matmuls(graph, parts, unit);
    changed = true;
  }
  return changed;
}

}  // namespace forge::passes
