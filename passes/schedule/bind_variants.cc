#include "passes/schedule/bind_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "passes/schedule/liveness.h"
#include "passes/schedule/pack_arena.h"
#include "passes/schedule/pair_steps.h"
#include "passes/schedule/schedule.h"
#include "support/error.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Op;
using ir::Value;

ir::Cost cost_of_node(const ir::Graph& graph, NodeId node, const ir::Bounds& bounds) {
  return ir::op_def(graph.op(node)).cost(graph.attrs(node), graph.operand_types(node), graph.results(node), bounds);
}

/// Bytes and FLOPs of a step. FLOPs are those of all nodes; values that stay inside the step cost no bytes, and each
/// weight or value that crosses its border counts once, however many of its nodes read it. embed and the expert ops
/// read only some rows of their weight, so their own cost is taken.
ir::Cost cost_of_step(const ir::Graph& graph, const StepNodes& nodes, const ir::Bounds& bounds) {
  const auto inside = [&](NodeId node) { return std::ranges::find(nodes, node) != nodes.end(); };
  ir::Cost cost;
  std::set<Value> read;
  for (const NodeId node : nodes) {
    const ir::Cost own = cost_of_node(graph, node, bounds);
    cost.flops += own.flops;
    for (const Value& operand : graph.operands(node)) {
      if (inside(operand.node) || !read.insert(operand).second) continue;
      const bool weight = is_weight(graph, operand);
      const Op op = graph.op(node);
      const bool rows_only = weight && (op == Op::kEmbed || op == Op::kExpertMatmul || op == Op::kExpertAdd);
      const std::int64_t bytes = rows_only ? own.weight_bytes : graph.type(operand).bytes(bounds);
      (weight ? cost.weight_bytes : cost.activation_bytes) += bytes;
    }
    for (std::uint32_t i = 0; i < graph.results(node).size(); ++i) {
      const Value value{node, i};
      const auto uses = graph.uses(value);
      const bool leaves = graph.is_output(value) || uses.empty() ||
                          std::ranges::any_of(uses, [&](const ir::Use& use) { return !inside(use.node); });
      if (leaves) cost.activation_bytes += graph.type(value).bytes(bounds);
    }
  }
  return cost;
}

std::int32_t layer_of_step(const ir::Graph& graph, const StepNodes& nodes) {
  // The first node's layer: a step of the embedding and layer 0's norm weight, for example, belongs to no layer.
  return graph.layer(nodes.front());
}

/// Adds layer and cost of a step's nodes, for reports.
void describe_step(const ir::Graph& graph, const StepNodes& nodes, const ir::Bounds& bounds, Choice& choice) {
  invariant(choice.scratch_bytes >= 0, "PH-004", "a kernel asks for negative scratch");
  const ir::Cost cost = cost_of_step(graph, nodes, bounds);
  plan::StepT& step = choice.main == 0 ? choice.step : choice.then.at(choice.main - 1).step;
  choice.step.layer = layer_of_step(graph, nodes);
  for (Choice& next : choice.then) next.step.layer = choice.step.layer;
  step.weight_bytes = cost.weight_bytes;
  step.activation_bytes = cost.activation_bytes;
  step.flops = cost.flops;
}

/// Asks the target for the kernel of a step.
Choice choose_step(const ir::Graph& graph, const StepNodes& nodes, const Target& target, const Binding& binding) {
  auto choice = target.choose(graph, nodes, binding);
  if (!choice)
    throw Error(ErrorCode::kModelUnsupported,
                fmt::format("{} has no kernel for a step of this model ({})", target.name(),
                            ir::op_def(graph.op(nodes.front())).name),
                choice.error().why, choice.error().fix);
  describe_step(graph, nodes, binding.bounds, *choice);
  return std::move(*choice);
}

/// The same for two steps. Of two side by side the second follows the first where the target cannot run both at once.
Choice choose_both(const ir::Graph& graph, const Turn& turn, const Target& target, const Binding& binding) {
  if (auto both = turn.joined ? target.choose_joined(graph, turn.step, turn.second, binding)
                              : target.choose_both(graph, turn.step, turn.second, binding)) {
    describe_step(graph, turn.nodes(), binding.bounds, *both);
    return std::move(*both);
  }
  invariant(!turn.joined, "PH-007", "a target has a kernel for the steps that it joins");
  auto choice = choose_step(graph, turn.step, target, binding);
  auto second = choose_step(graph, turn.second, target, binding);
  choice.scratch_bytes = std::max(choice.scratch_bytes, second.scratch_bytes);
  auto rest = std::exchange(second.then, {});
  choice.then.push_back(std::move(second));
  std::ranges::move(rest, std::back_inserter(choice.then));
  return choice;
}

std::vector<Step> choose_steps(const ir::Graph& graph, std::span<const Turn> turns, const Target& target,
                               const Binding& binding) {
  std::vector<Step> steps;
  steps.reserve(turns.size());
  for (const Turn& turn : turns) {
    auto choice = turn.second.empty() ? choose_step(graph, turn.step, target, binding)
                                      : choose_both(graph, turn, target, binding);
    steps.push_back({.nodes = turn.nodes(), .choice = std::move(choice), .scratch_offset = 0});
  }
  return steps;
}

/// Places the buffers and the scratch of all steps in one arena. The scratch of a step is live in that step alone.
void place_in_arena(Variant& variant, std::int64_t alignment) {
  std::vector<Interval> intervals;
  for (const Buffer& buffer : variant.buffers) intervals.push_back({buffer.first, buffer.last, buffer.bytes});
  for (std::size_t step = 0; step < variant.steps.size(); ++step) {
    const auto at = static_cast<std::int32_t>(step);
    intervals.push_back({at, at, variant.steps[step].choice.scratch_bytes});
  }
  const Packing packing = pack_arena(intervals, alignment);
  std::size_t next = 0;
  for (Buffer& buffer : variant.buffers) buffer.offset = packing.offsets[next++];
  for (Step& step : variant.steps) step.scratch_offset = packing.offsets[next++];
  variant.arena_bytes = packing.bytes;
  variant.arena_bound_bytes = packing.bound_bytes;
}

}  // namespace

/// The schedule does not depend on the bounds, so all variants share it, except for which steps share a launch.
/// Variants run one at a time and share one arena, which is as large as the largest needs.
Program bind_variants(ir::Graph graph, const Target& target, std::span<const Target::VariantSpec> variants) {
  const Views views(graph, target);
  const auto order = schedule(graph, views);
  const ir::ValueNumbers numbers(graph);
  const auto before_choice = nodes_before_choices(graph);
  Program program;
  std::int64_t sampling_bytes = 0;
  for (const auto& spec : variants) {
    try {
      Variant variant{.name = spec.name, .bounds = spec.bounds};
      variant.stored = target.stored_forms(graph, order, spec.bounds);
      const auto beside = [&](const StepNodes& step, const StepNodes& other) {
        return target.runs_beside(graph, step, other, spec.bounds);
      };
      const auto joins = [&](const StepNodes& step, const StepNodes& next) {
        return target.joins(graph, step, next, spec.bounds);
      };
      const auto turns = pair_steps(graph, order, views, beside, joins);
      std::vector<StepNodes> nodes;
      for (const Turn& turn : turns) nodes.push_back(turn.nodes());
      variant.buffers = plan_buffers(graph, nodes, spec.bounds, views, variant.stored);
      const RowLayout rows(graph, variant.buffers);
      const Binding binding{spec.bounds, rows, numbers, variant.stored, before_choice};
      variant.steps = choose_steps(graph, turns, target, binding);
      for (Choice& choice : target.sampling(graph, binding)) {
        sampling_bytes = std::max(sampling_bytes, choice.scratch_bytes);
        variant.sample_steps.push_back({.nodes = {}, .choice = std::move(choice)});
      }
      place_in_arena(variant, target.arena_alignment());
      if (variant.arena_bytes > program.arena_bytes) {
        program.arena_bytes = variant.arena_bytes;
        program.arena_bound_bytes = variant.arena_bound_bytes;
      }
      program.variants.push_back(std::move(variant));
    } catch (const Error& error) {
      throw error.within(fmt::format("variant {} for {}", spec.name, target.name()));
    }
  }
  invariant(!program.variants.empty(), "PH-005", "the target has no variants");
  program.arena_bytes = std::max(program.arena_bytes, sampling_bytes);
  program.arena_bound_bytes = std::max(program.arena_bound_bytes, sampling_bytes);
  program.graph = std::move(graph);
  return program;
}

}  // namespace forge::passes
