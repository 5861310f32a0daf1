// The rules of the pipeline's phases, checked after every pass. An error cites the number:
//   PH-001  the graph has only ops of its phase or earlier ones
//   PH-002  from kLowered on, every matmul takes the activation type that the target asks for
//   PH-003  only graphs of kGrouped have groups, of nodes that steps compute; steps do not depend on each other in a
//           cycle (checked by schedule.cc; the verifier's IR-012 says the same)
//   PH-004  a kernel does not ask for negative scratch (checked by bind_variants.cc)
//   PH-005  a target has at least one variant (checked by bind_variants.cc)
//   PH-006  the target accepts every group as a whole
//   PH-007  a target has a kernel for steps that it joins (checked by bind_variants.cc)

#include <fmt/format.h>

#include <map>

#include "passes/passes.h"
#include "support/error.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;

/// The earliest phase in which the op may occur.
Phase first_phase(Op op) {
  switch (op) {
    case Op::kSumSquares:
    case Op::kInvRmsScale:
      return Phase::kRestructured;
    case Op::kQuantize:
      return Phase::kLowered;
    default:
      return Phase::kPortable;
  }
}

void check_activations(const ir::Graph& graph, const Target& target, NodeId matmul, bool before_choice) {
  const ir::TensorType& x = graph.type(graph.operand(matmul, 0));
  const DType weight = graph.type(graph.operand(matmul, 1)).dtype;
  const DType wanted = target.activation_type(weight, x.cols(), before_choice);
  invariant(x.dtype == wanted, "PH-002",
            fmt::format("node {}: a matmul with a {} weight takes {}, but {} needs {}", matmul, dtype_name(weight),
                        dtype_name(x.dtype), target.name(), dtype_name(wanted)));
}

}  // namespace

void check_phase(const ir::Graph& graph, const Target& target, Phase phase) {
  std::map<std::uint32_t, std::vector<NodeId>> groups;
  const auto before_choice = nodes_before_choices(graph);
  for (const NodeId node : graph.topological_order()) {
    const std::string_view name = ir::op_def(graph.op(node)).name;
    invariant(first_phase(graph.op(node)) <= phase, "PH-001",
              fmt::format("node {}: {} is not allowed this early in the pipeline", node, name));
    if (phase >= Phase::kLowered && is_matmul(graph, node)) check_activations(graph, target, node, before_choice[node]);
    if (graph.group(node) == ir::kNoGroup) continue;
    invariant(phase >= Phase::kGrouped && runs_in_step(graph, node), "PH-003",
              fmt::format("node {}: {} cannot be in a group here", node, name));
    groups[graph.group(node)].push_back(node);
  }
  for (const auto& [group, members] : groups)
    if (const auto why = target.group_refusal(graph, members))
      invariant(false, "PH-006", fmt::format("group {}: refused by {}: {}", group, target.name(), *why));
}

}  // namespace forge::passes
