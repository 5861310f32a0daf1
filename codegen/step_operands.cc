#include "codegen/step_operands.h"

#include <algorithm>

#include "ir/op.h"

namespace forge::codegen {

using plan::Operand;
using plan::Space;

std::uint32_t row_bytes_of(DType type, std::int64_t cols) {
  const bool narrow =
      is_quantized_activation(type) || type == DType::kF16A || type == DType::kF16 || type == DType::kBF16;
  return static_cast<std::uint32_t>(narrow ? ir::stored_row_bytes(type, cols) : cols * kFloatBytes);
}

Operand StepOperands::of(ir::Value value) const {
  return plan::operand_of(numbers_.of(value), static_cast<std::uint8_t>(graph_.type(value).dtype));
}

Operand StepOperands::scratch(std::int64_t offset) {
  return plan::operand_at(Space::Arena, 0, static_cast<std::uint64_t>(offset));
}

// A step has few operands, so a linear search is fast enough.
std::uint16_t StepOperands::role(const Operand& operand) {
  const auto found = std::ranges::find_if(operands_, [&](const auto& other) { return same(operand, other); });
  const auto at = static_cast<std::uint16_t>(found - operands_.begin());
  if (found == operands_.end()) operands_.push_back(operand);
  return at;
}

}  // namespace forge::codegen
