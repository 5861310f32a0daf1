// FakeTarget: which nodes one step may hold, and step choices that consist of a label. See fake_target.h.
#include "tests/passes/fake_target.h"

#include <algorithm>

namespace forge::passes::test {

using ir::NodeId;
using ir::Op;

DType FakeTarget::activation_type(DType weight, std::int64_t k, bool before_choice) const {
  if (!quantises || dtype_info(weight).block_elems == 1 || k % 32 != 0) return DType::kF32;
  return before_choice ? choosing.value_or(activation) : activation;
}

/// Rules of a group: one node that produces rows, in first place; attention only with a quantize; a KV store only with
/// the producers of what it stores; an interleaved split only with its GLU.
std::optional<std::string> FakeTarget::group_refusal(const ir::Graph& graph, std::span<const NodeId> members) const {
  const auto has = [&](NodeId node) { return std::ranges::find(members, node) != members.end(); };
  const auto makes_rows = [&](NodeId node) {
    switch (graph.op(node)) {
      case Op::kMatmul:
      case Op::kExpertMatmul:
      case Op::kRoute:
      case Op::kAttention:
      case Op::kEmbed:
      case Op::kGatherRows:
      case Op::kRmsNorm:
      case Op::kLayerNorm:
      case Op::kRopeFreqs:
      case Op::kRopeTable:
        return true;
      default:
        return false;
    }
  };
  if (members.size() < 2) return std::nullopt;
  for (const NodeId node : members) {
    const Op op = graph.op(node);
    if (alone.contains(op)) return "it stands alone";
    if (makes_rows(node) && node != members.front()) return "it makes rows of its own";
    if (graph.op(members.front()) == Op::kAttention && node != members.front() && op != Op::kQuantize)
      return "attention takes a quantize only";
    const bool both = op == Op::kKvStore && graph.attrs_as<ir::KvStoreAttrs>(node).half == ir::KvHalf::kBoth;
    if (op == Op::kKvStore && !(has(graph.operand(node, 1).node) && (!both || has(graph.operand(node, 2).node))))
      return "what is stored is not all here";
    if (op == Op::kSplit && graph.attrs_as<ir::PartsAttrs>(node).unit > 0)
      for (const NodeId user : graph.users(node))
        if (!has(user)) return "an interleaved split without its GLU";
    // The inverse RMS is known only after all squares are summed, which needs the end of the step.
    if (op == Op::kInvRmsScale && has(graph.operand(node, 1).node)) return "the squares are summed in the same step";
  }
  return std::nullopt;
}

std::expected<Choice, Refusal> FakeTarget::choose(const ir::Graph& graph, std::span<const NodeId> members,
                                                  const Binding& binding) const {
  Choice choice;
  for (const NodeId node : members) {
    const auto name = ir::op_def(graph.op(node)).name;
    if (unsupported.contains(graph.op(node)))
      return std::unexpected(Refusal{.why = "no kernel for " + std::string(name), .fix = {}});
    choice.step.label += (choice.step.label.empty() ? "" : "+") + std::string(name);
    if (graph.op(node) == Op::kAttention) choice.scratch_bytes = scratch_bytes * binding.bounds.tokens;
  }
  return choice;
}

bool FakeTarget::runs_beside(const ir::Graph& graph, std::span<const NodeId> step, std::span<const NodeId> other,
                             const ir::Bounds& bounds) const {
  const auto takes = [&](std::span<const NodeId> nodes) { return graph.op(nodes.front()) == Op::kMatmul; };
  return beside && bounds.tokens < 128 && takes(step) && takes(other);
}

std::optional<Choice> FakeTarget::choose_both(const ir::Graph& graph, std::span<const NodeId> step,
                                              std::span<const NodeId> other, const Binding& binding) const {
  if (!one_kernel) return std::nullopt;
  auto choice = choose(graph, step, binding);
  choice->step.label += "|" + choose(graph, other, binding)->step.label;
  return *std::move(choice);
}

std::vector<Target::VariantSpec> FakeTarget::variants(std::int64_t context, std::int64_t batch_max) const {
  const std::int64_t blocks = (context + 31) / 32;
  return {{"decode" + std::to_string(batch_max), {batch_max, batch_max, batch_max, blocks}},
          {"prefill128", {128, 8, batch_max, blocks}}};
}

}  // namespace forge::passes::test
