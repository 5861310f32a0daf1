// The schedule is the post-order of a depth-first walk from the outputs to the steps that they need. Of a step's
// operands, the one with the longest chain of steps in front of it is computed first, so that the results of short
// chains are live for a short time (after Sethi and Ullman, JACM 1970).

#include "passes/schedule/schedule.h"

#include <algorithm>
#include <map>

#include "support/error.h"

namespace forge::passes {
namespace {

using ir::NodeId;

/// The quotient graph: steps, not yet ordered, with the edges between them.
struct Quotient {
  std::vector<StepNodes> steps;
  std::vector<std::vector<std::size_t>> needs;  ///< by step: the distinct steps whose results it reads
  std::vector<std::vector<std::size_t>> users;  ///< by step: the reverse edges
  std::vector<std::int64_t> depth;              ///< by step: length of the longest chain of steps in front of it
};

/// Contracts each group into a step; every other node that runs in the step is a step of its own.
Quotient quotient_of(const ir::Graph& graph, const Views& views) {
  Quotient quotient;
  std::map<std::uint32_t, std::size_t> step_of_group;
  std::vector<std::size_t> step_of(graph.id_bound());
  for (const NodeId node : graph.topological_order()) {
    if (!runs_in_step(graph, node) || views.holds(node)) continue;
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
      const NodeId producer = views.base(graph, operand).node;
      if (!runs_in_step(graph, producer)) continue;
      const std::size_t from = step_of[producer];
      auto& needs = quotient.needs[step];
      if (from != step && std::ranges::find(needs, from) == needs.end()) needs.push_back(from);
    }
  }
  return quotient;
}

/// Computes users and depths by visiting steps once all their needs have been visited. If some step is never reached,
/// groups depend on each other in a cycle (PH-003).
void measure_depths(Quotient& quotient) {
  const std::size_t count = quotient.steps.size();
  auto& users = quotient.users;
  users.assign(count, {});
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
  invariant(done == count, "PH-003", "fused groups depend on each other in a cycle");
}

/// The depth-first walk, with an explicit stack.
class Walk {
 public:
  explicit Walk(Quotient& quotient)
      : quotient_(quotient),
        live_(quotient.steps.size()),
        entered_(quotient.steps.size()),
        written_(quotient.steps.size()) {}

  /// Orders everything that `root` needs, then `root`.
  void visit(std::size_t root) {
    std::vector<std::pair<std::size_t, std::size_t>> open;  // (step, operands visited)
    if (!entered_[root]) open.emplace_back(root, 0);
    entered_[root] = true;
    while (!open.empty()) {
      auto& [step, visited] = open.back();
      if (visited < quotient_.needs[step].size()) {
        const std::size_t need = quotient_.needs[step][visited++];
        if (!entered_[need]) open.emplace_back(need, 0);
        entered_[need] = true;
        continue;
      }
      const std::size_t done = step;
      open.pop_back();
      write(done);
    }
  }

  /// Marks all steps that an output needs.
  void mark_live(std::size_t root) {
    std::vector<std::size_t> open{root};
    while (!open.empty()) {
      const std::size_t step = open.back();
      open.pop_back();
      if (live_[step]) continue;
      live_[step] = true;
      open.insert(open.end(), quotient_.needs[step].begin(), quotient_.needs[step].end());
    }
  }

  std::vector<StepNodes> ordered;

 private:
  /// Appends a step. Steps that no output needs are appended as soon as their operands are computed; later, they would
  /// keep their operands live for longer.
  void write(std::size_t step) {
    std::vector<std::size_t> open{step};
    while (!open.empty()) {
      const std::size_t next = open.back();
      open.pop_back();
      entered_[next] = written_[next] = true;
      ordered.push_back(std::move(quotient_.steps[next]));
      for (const std::size_t user : quotient_.users[next]) {
        const auto is_written = [&](std::size_t need) { return written_[need]; };
        if (!live_[user] && !entered_[user] && std::ranges::all_of(quotient_.needs[user], is_written)) {
          entered_[user] = true;
          open.push_back(user);
        }
      }
    }
  }

  Quotient& quotient_;
  std::vector<bool> live_, entered_, written_;
};

}  // namespace

std::vector<StepNodes> schedule(const ir::Graph& graph, const Views& views) {
  Quotient quotient = quotient_of(graph, views);
  measure_depths(quotient);
  for (auto& needs : quotient.needs)
    std::ranges::stable_sort(needs, std::ranges::greater{}, [&](std::size_t step) { return quotient.depth[step]; });

  std::vector<std::size_t> roots;
  for (const auto& output : graph.outputs())
    for (std::size_t step = 0; step < quotient.steps.size(); ++step)
      if (std::ranges::find(quotient.steps[step], output.value.node) != quotient.steps[step].end())
        roots.push_back(step);
  Walk walk(quotient);
  for (const std::size_t root : roots) walk.mark_live(root);
  for (const std::size_t root : roots) walk.visit(root);
  for (std::size_t step = 0; step < quotient.steps.size(); ++step) walk.visit(step);
  return std::move(walk.ordered);
}

std::vector<std::int32_t> step_of_node(const ir::Graph& graph, std::span<const StepNodes> steps) {
  std::vector<std::int32_t> step_of(graph.id_bound(), -1);
  for (std::size_t step = 0; step < steps.size(); ++step)
    for (const NodeId node : steps[step]) step_of[node] = static_cast<std::int32_t>(step);
  return step_of;
}

}  // namespace forge::passes
