#include "passes/schedule/pair_steps.h"

#include <algorithm>

namespace forge::passes {
namespace {

/// How far forward a step may move: results that are made early occupy the arena for longer.
constexpr std::size_t kReach = 8;

/// For each step the last of those that it needs; -1: none.
std::vector<std::int32_t> last_needs(const ir::Graph& graph, std::span<const StepNodes> order, const Views& views) {
  const auto step_of = step_of_node(graph, order);
  std::vector<std::int32_t> last(order.size(), -1);
  for (std::size_t step = 0; step < order.size(); ++step)
    for (const auto node : order[step])
      for (const ir::Value& operand : graph.operands(node)) {
        // Stores of one chain write different rows (IR-011), so the state between two of them is no need.
        if (graph.op(node) == ir::Op::kKvStore && graph.op(operand.node) == ir::Op::kKvStore) continue;
        const auto from = step_of[views.base(graph, operand).node];
        if (from != static_cast<std::int32_t>(step)) last[step] = std::max(last[step], from);
      }
  return last;
}

}  // namespace

StepNodes Turn::nodes() const {
  auto all = step;
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

std::vector<Turn> pair_steps(const ir::Graph& graph, std::span<const StepNodes> order, const Views& views,
                             const Wanted& beside, const Wanted& joins) {
  const auto last = last_needs(graph, order, views);
  std::vector<bool> moved(order.size());
  std::vector<Turn> turns;
  for (std::size_t step = 0; step < order.size(); ++step) {
    if (moved[step]) continue;
    turns.push_back({.step = order[step], .second = {}});
    const auto share = [&](std::size_t other) {
      turns.back().second = order[other];
      moved[other] = true;
    };
    auto next = step + 1;
    while (next < order.size() && moved[next]) ++next;
    if (next < order.size() && joins(order[step], order[next])) {
      turns.back().joined = true;
      share(next);
      continue;
    }
    for (auto other = step + 1; other < std::min(order.size(), step + 1 + kReach); ++other) {
      if (moved[other] || last[other] >= static_cast<std::int32_t>(step) || !beside(order[step], order[other]))
        continue;
      share(other);
      break;
    }
  }
  return turns;
}

}  // namespace forge::passes
