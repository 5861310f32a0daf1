#include "passes/schedule/liveness.h"

#include <algorithm>
#include <map>
#include <optional>

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Value;

/// Visits the values in schedule order and gives each value that leaves its step a buffer, either a new one or, in
/// place, that of an operand.
class Planner {
 public:
  Planner(const ir::Graph& graph, std::span<const StepNodes> steps, const ir::Bounds& bounds, const Views& views,
          const StoredForms& stored)
      : graph_(graph),
        steps_(steps),
        step_of_(step_of_node(graph, steps)),
        bounds_(bounds),
        views_(views),
        stored_(stored) {}

  std::vector<Buffer> run() {
    for (std::size_t step = 0; step < steps_.size(); ++step)
      for (const NodeId node : steps_[step])
        for (std::uint32_t i = 0; i < graph_.results(node).size(); ++i) assign_buffer({node, i});
    return std::move(buffers_);
  }

 private:
  [[nodiscard]] std::int64_t bytes_of(Value value) const {
    auto type = graph_.type(value);
    if (const auto found = stored_.find(value); found != stored_.end()) type.dtype = found->second.dtype;
    return type.bytes(bounds_);
  }
  [[nodiscard]] std::int32_t step_of(Value value) const { return step_of_[value.node]; }

  /// The last step that reads the value; its producer if no step does.
  [[nodiscard]] std::int32_t last_use(Value value) const {
    std::int32_t last = step_of(value);
    for (const ir::Use& use : views_.uses(graph_, value)) last = std::max(last, step_of_[use.node]);
    return last;
  }

  void assign_buffer(Value value) {
    if (graph_.type(value).is_state() || graph_.is_output(value)) return;  // outputs are not in the arena
    const auto uses = views_.uses(graph_, value);
    const bool leaves = uses.empty() || last_use(value) > step_of(value);
    if (!leaves) return;
    if (const auto host = in_place_of(value)) {
      Buffer& buffer = buffers_[*host];
      buffer.aliases.push_back(value);
      buffer.last = last_use(value);
      buffer_of_[value] = *host;
      return;
    }
    buffer_of_[value] = buffers_.size();
    buffers_.push_back({.value = value, .bytes = bytes_of(value), .first = step_of(value), .last = last_use(value)});
  }

  /// The buffer that `value` may overwrite. Walks up from the value through ops of its step that may work in place, to
  /// an operand of the same size from an earlier step:
  ///   earlier step: x        this step: add(m, x) -> softcap -> value        value may overwrite x
  [[nodiscard]] std::optional<std::size_t> in_place_of(Value value) const {
    std::vector<Value> open{value};
    while (!open.empty()) {
      const Value at = open.back();
      open.pop_back();
      for (const Value& operand : in_place_operands(at.node)) {
        if (bytes_of(operand) != bytes_of(value)) continue;
        if (step_of(operand) == step_of(value))
          open.push_back(operand);
        else if (const auto host = free_after(operand, step_of(value)))
          return host;
      }
    }
    return std::nullopt;
  }

  /// Operands that the op may overwrite, because it reads each element at most where it writes it; the preferred first.
  [[nodiscard]] std::vector<Value> in_place_operands(NodeId node) const {
    const ir::OpDef& def = ir::op_def(graph_.op(node));
    if (def.in_place_operand < 0) return {};
    const auto first = static_cast<std::size_t>(static_cast<std::uint8_t>(def.in_place_operand));
    std::vector<Value> operands{graph_.operand(node, first)};
    for (std::size_t i = 0; def.elementwise && i < graph_.operands(node).size(); ++i)
      if (i != first) operands.push_back(graph_.operand(node, i));
    return operands;
  }

  /// The buffer of `operand` if `step` is its last reader and reads it once, and no other value has overwritten it.
  [[nodiscard]] std::optional<std::size_t> free_after(Value operand, std::int32_t step) const {
    const auto found = buffer_of_.find(operand);
    if (found == buffer_of_.end() || buffers_[found->second].last != step) return std::nullopt;
    const Buffer& buffer = buffers_[found->second];
    const Value newest = buffer.aliases.empty() ? buffer.value : buffer.aliases.back();
    std::size_t reads = 0;
    for (const ir::Use& use : views_.uses(graph_, operand)) reads += step_of_[use.node] == step ? 1 : 0;
    return newest == operand && reads == 1 ? std::optional(found->second) : std::nullopt;
  }

  const ir::Graph& graph_;
  std::span<const StepNodes> steps_;
  std::vector<std::int32_t> step_of_;
  ir::Bounds bounds_;
  const Views& views_;
  const StoredForms& stored_;
  std::vector<Buffer> buffers_;
  std::map<Value, std::size_t> buffer_of_;
};

}  // namespace

std::vector<Buffer> plan_buffers(const ir::Graph& graph, std::span<const StepNodes> steps, const ir::Bounds& bounds,
                                 const Views& views, const StoredForms& stored) {
  return Planner(graph, steps, bounds, views, stored).run();
}

}  // namespace forge::passes
