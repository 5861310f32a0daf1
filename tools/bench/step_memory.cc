#include "tools/bench/step_memory.h"

#include <algorithm>
#include <bit>

#include "ir/attrs.h"
#include "runtime/plan/gpu_io.h"

namespace forge::tools {
namespace {

/// Bits of an address within an operand's range. The first range begins above 0, so that null belongs to none.
constexpr int kRangeBits = 40;

std::uint64_t range_of(std::size_t operand) {
  return (std::uint64_t{operand} + 1) << kRangeBits;
}

}  // namespace

StepMemory::StepMemory(const plan::StepT& step, const StepShape& shape) : step_(step), shape_(shape) {}

std::vector<std::uint64_t> StepMemory::arguments() const {
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < step_.operands.size(); ++i) out.push_back(range_of(i));
  for (const auto constant : step_.body.AsLaunch()->constants) out.push_back(static_cast<std::uint64_t>(constant));
  return out;
}

const plan::Operand* StepMemory::operand_at(std::uint64_t address) const {
  const auto range = address >> kRangeBits;
  return range == 0 || range > step_.operands.size() ? nullptr : &step_.operands[range - 1];
}

std::optional<std::uint32_t> StepMemory::load(std::uint64_t address) {
  const auto* operand = operand_at(address);
  if (operand == nullptr || address % 4 != 0) return std::nullopt;
  if (operand->space() == plan::Space::Counters) {
    const auto found = counters_.find(address);
    return found == counters_.end() ? std::optional(0U) : found->second;
  }
  if (operand->space() != plan::Space::Input) return std::nullopt;
  constexpr std::uint64_t kWithin = (std::uint64_t{1} << kRangeBits) - 1;
  return input(operand->index(), static_cast<std::int64_t>(address & kWithin) / 4);
}

void StepMemory::store(std::uint64_t address, std::optional<std::uint32_t> word) {
  const auto* operand = operand_at(address);
  if (operand != nullptr && operand->space() == plan::Space::Counters) counters_[address] = word;
}

/// Word `word` of a step's input (plan::GpuInput), as the executor would write it.
std::optional<std::uint32_t> StepMemory::input(std::uint16_t index, std::int64_t word) const {
  const auto& [tokens, rows, sequences, context] = shape_;
  const auto number = [](std::int64_t value) { return std::optional(static_cast<std::uint32_t>(value)); };
  const bool one_each = tokens == sequences;
  switch (static_cast<ir::InputKind>(index)) {
    case ir::InputKind::kPositions:
      return number(word >= tokens ? -1 : context + (one_each ? 0 : word));
    case ir::InputKind::kSequence:
      return number(one_each && word < tokens ? word : 0);
    case ir::InputKind::kRows:
      return number(word >= rows ? 0 : rows == tokens ? word : tokens - 1);
    case ir::InputKind::kKvLength:
      return number(word < sequences ? context + tokens / sequences : 0);
    case ir::InputKind::kBlockTable:
    case ir::InputKind::kStateRead:
    case ir::InputKind::kStateWrite:
      return number(word);
    default:
      break;
  }
  switch (static_cast<plan::GpuInput>(index)) {
    case plan::GpuInput::kCounts: {
      const std::int64_t counts[] = {tokens, rows, sequences, 0};
      return number(counts[std::clamp<std::int64_t>(word, 0, 3)]);
    }
    case plan::GpuInput::kSampling: {  // greedy: gpu::SamplingRow{.temperature = 0, .top_p = 1}
      constexpr std::int64_t kWords = sizeof(gpu::SamplingRow) / 4, kTopP = 1;
      return word % kWords == kTopP ? std::optional(std::bit_cast<std::uint32_t>(1.0F)) : std::optional(0U);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace forge::tools
