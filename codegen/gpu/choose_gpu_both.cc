// Two steps in one launch. Matmuls which read the same rows but have weights of different types, such as q and k beside
// v in files of mixed types, or different epilogues, such as a router beside a shared expert: alone neither has blocks
// for the whole device. The embedding beside RoPE's table. And each launch costs a wait for the one before it.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/gpu/gpu_chooser.h"

namespace forge::codegen {

using plan::Operand;
using plan::Space;

namespace {

/// An operand of the second step: its scratch and its counters lie behind those of the first.
Operand behind_first(const Operand& operand, std::int64_t scratch_bytes, std::int64_t counter_bytes) {
  if (operand.value() != plan::kNoValue) return operand;
  if (operand.space() == Space::Arena) return moved(operand, scratch_bytes);
  return operand.space() == Space::Counters ? moved(operand, counter_bytes) : operand;
}

}  // namespace

std::optional<passes::Choice> GpuChooser::choose_both(std::span<const ir::NodeId> first,
                                                      std::span<const ir::NodeId> second) const {
  GpuChooser one(graph_, binding_, target_, tuning_, attention_, kv_, deterministic_), other(one);
  auto choice = one.choose(first);
  const auto beside = other.choose(second);
  if (!choice || !beside || !choice->then.empty() || !beside->then.empty()) return std::nullopt;
  auto &text = one.text_, &text_beside = other.text_;
  if (text.any_threads)
    text.threads = text_beside.threads;
  else if (text_beside.any_threads)
    text_beside.threads = text.threads;
  if (!text.has_blocks || !text_beside.has_blocks || text.threads != text_beside.threads ||
      (text.lds_bytes > 0) != (text_beside.lds_bytes > 0) || (!choice->constants.empty() && !beside->constants.empty()))
    return std::nullopt;
  if (choice->constants.empty()) choice->constants = beside->constants;
  const auto scratch = behind(choice->scratch_bytes);
  for (const auto& operand : beside->step.operands)
    choice->step.operands.push_back(behind_first(operand, scratch, choice->counter_bytes));
  if (beside->scratch_bytes > 0) choice->scratch_bytes = scratch + beside->scratch_bytes;
  choice->counter_bytes += beside->counter_bytes;
  choice->step.label += " | " + beside->step.label;
  if (!beside->step.reason.empty())
    choice->step.reason += (choice->step.reason.empty() ? "" : "; ") + beside->step.reason;
  auto& launch = *choice->step.body.AsLaunch();
  launch.blocks += beside->step.body.AsLaunch()->blocks;
  launch.threads = text.threads;
  launch.lds_bytes = std::max(launch.lds_bytes, beside->step.body.AsLaunch()->lds_bytes);
  choice->kernel = kernel_source(target_, fmt::format("{}_and_{}", one.stem_, other.stem_), text, text_beside);
  return std::move(*choice);
}

}  // namespace forge::codegen
