#pragma once
// The operands of a step that is being chosen: values of the graph, each once, by role.

#include <cstdint>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/value_numbers.h"
#include "runtime/plan/step.h"

namespace forge::codegen {

inline constexpr std::int64_t kFloatBytes = sizeof(float);

/// Bytes from row to row of a value.
std::uint32_t row_bytes_of(DType type, std::int64_t cols);

class StepOperands {
 public:
  StepOperands(const ir::Graph& graph, const ir::ValueNumbers& numbers) : graph_(graph), numbers_(numbers) {}

  /// The value, its rows as far apart as they will lie. Lowering writes the address.
  [[nodiscard]] plan::Operand of(ir::Value value) const;
  /// `offset` bytes into the step's scratch.
  [[nodiscard]] static plan::Operand scratch(std::int64_t offset);

  /// The role of an operand: its index in the step. Equal operands have one role.
  std::uint16_t role(const plan::Operand& operand);

  std::vector<plan::Operand> take() { return std::exchange(operands_, {}); }

 private:
  const ir::Graph& graph_;
  const ir::ValueNumbers& numbers_;
  std::vector<plan::Operand> operands_;
};

}  // namespace forge::codegen
