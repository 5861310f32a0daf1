#pragma once
// The operand list of a step that is being chosen. Step bodies refer to operands by their index in the list, called
// role. Used by the choosers of both back-ends.

#include <cstdint>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/value_numbers.h"
#include "runtime/plan/step.h"

namespace forge::codegen {

inline constexpr std::int64_t kFloatBytes = sizeof(float);

/// Bytes of a row of `cols` columns; types other than quantised activations count as 4 bytes per column.
std::uint32_t row_bytes_of(DType type, std::int64_t cols);

class StepOperands {
 public:
  StepOperands(const ir::Graph& graph, const ir::ValueNumbers& numbers) : graph_(graph), numbers_(numbers) {}

  /// An operand for a value of the graph. Lowering writes its address and row distance (value_places.h).
  [[nodiscard]] plan::Operand of(ir::Value value) const;
  /// An operand at `offset` bytes into the step's scratch.
  [[nodiscard]] static plan::Operand scratch(std::int64_t offset);

  /// Adds an operand to the list, if it is not there yet, and returns its role.
  std::uint16_t role(const plan::Operand& operand);

  /// Moves the list out; the next step starts with an empty one.
  std::vector<plan::Operand> take() { return std::exchange(operands_, {}); }

 private:
  const ir::Graph& graph_;
  const ir::ValueNumbers& numbers_;
  std::vector<plan::Operand> operands_;
};

}  // namespace forge::codegen
