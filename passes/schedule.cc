// The schedule is a depth-first walk from the outputs to what they need, written down on the way back (Sethi and
// Ullman, JACM 1970, on the order of operands: the one that needs most comes first).

#include "passes/schedule.h"

#include <algorithm>
#include <map>

#include "support/error.h"

namespace forge::passes {
namespace {

using ir::NodeId;

/// Steps before they have an order, with their edges.
struct Quotient {
  std::vector<StepNodes> steps;
  std::vector<std::vector<std::size_t>> needs;  ///< by step, distinct
  std::vector<std::int64_t> depth;              ///< steps on the longest way to here
};

Quotient quotient_of(const ir::Graph& graph) {
  Quotient quotient;
  std::map<std::uint32_t, std::size_t> step_of_group;
  std::vector<std::size_t> step_of(graph.id_bound());
  for (const NodeId node : graph.topological_order()) {
    if (!runs_in_step(graph, node)) continue;
    const std::uint32_t group = graph.group(node);
    std::size_t step = quotient.steps.size();
    if (group != ir::kNoGroup) step = step_of_group.emplace(group, step).first->second;
    if (step == quotient.steps.size()) {
      quotient.steps.emplace_back();
      quotient.needs.emplace_back();
    }
    quotient.steps[step].push_back(node);
    step_of[node] = step;
    for (const ir::Value& operand : graph.operands(node)) {
      if (!runs_in_step(graph, operand.node)) continue;
      const std::size_t from = step_of[operand.node];
      auto& needs = quotient.needs[step];
      if (from != step && std::ranges::find(needs, from) == needs.end()) needs.push_back(from);
    }
  }
  return quotient;
}

/// Depths by relaxation in an order of ready steps; also proves that there is such an order.
void measure_depths(Quotient& quotient) {
  const std::size_t count = quotient.steps.size();
  std::vector<std::vector<std::size_t>> users(count);
  std::vector<std::size_t> waiting(count);
  for (std::size_t step = 0; step < count; ++step) {
    waiting[step] = quotient.needs[step].size();
    for (const std::size_t need : quotient.needs[step]) users[need].push_back(step);
  }
  quotient.depth.assign(count, 0);
  std::vector<std::size_t> ready;
  for (std::size_t step = 0; step < count; ++step)
    if (waiting[step] == 0) ready.push_back(step);
  std::size_t done = 0;
  while (!ready.empty()) {
    const std::size_t step = ready.back();
    ready.pop_back();
    ++done;
    for (const std::size_t user : users[step]) {
      quotient.depth[user] = std::max(quotient.depth[user], quotient.depth[step] + 1);
      if (--waiting[user] == 0) ready.push_back(user);
    }
  }
  invariant(done == count, "PH-003", "fused groups wait for each other");
}

}  // namespace

std::vector<StepNodes> schedule(const ir::Graph& graph) {
  Quotient quotient = quotient_of(graph);
  measure_depths(quotient);
  for (auto& needs : quotient.needs)
    std::ranges::stable_sort(needs,
                             [&](std::size_t a, std::size_t b) { return quotient.depth[a] > quotient.depth[b]; });

  // Roots: the steps of outputs, then whatever no output needs, the deepest first so that its operands come with it.
  std::vector<std::size_t> roots;
  for (const auto& output : graph.outputs())
    for (std::size_t step = 0; step < quotient.steps.size(); ++step)
      if (std::ranges::find(quotient.steps[step], output.value.node) != quotient.steps[step].end())
        roots.push_back(step);
  std::vector<std::size_t> rest(quotient.steps.size());
  for (std::size_t step = 0; step < rest.size(); ++step) rest[step] = step;
  std::ranges::stable_sort(rest, [&](std::size_t a, std::size_t b) { return quotient.depth[a] > quotient.depth[b]; });
  roots.insert(roots.end(), rest.begin(), rest.end());

  std::vector<StepNodes> ordered;
  std::vector<bool> entered(quotient.steps.size());
  std::vector<std::pair<std::size_t, std::size_t>> open;  // (step, operands visited)
  for (const std::size_t root : roots) {
    if (!entered[root]) open.emplace_back(root, 0);
    entered[root] = true;
    while (!open.empty()) {
      auto& [step, visited] = open.back();
      if (visited == quotient.needs[step].size()) {
        ordered.push_back(std::move(quotient.steps[step]));
        open.pop_back();
        continue;
      }
      const std::size_t need = quotient.needs[step][visited++];
      if (!entered[need]) open.emplace_back(need, 0);
      entered[need] = true;
    }
  }
  return ordered;
}

std::vector<std::int32_t> step_of_node(const ir::Graph& graph, std::span<const StepNodes> steps) {
  std::vector<std::int32_t> step_of(graph.id_bound(), -1);
  for (std::size_t step = 0; step < steps.size(); ++step)
    for (const NodeId node : steps[step]) step_of[node] = static_cast<std::int32_t>(step);
  return step_of;
}

}  // namespace forge::passes
