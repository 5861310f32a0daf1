#pragma once
// Global memory in a step as far as the step's shape says it: inputs, counters. What forge-bench --roofline gives to
// the walk of a kernel (codegen/gpu/code/walk.h) in place of the data.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "codegen/gpu/code/wave.h"
#include "runtime/plan/plan_generated.h"
#include "tools/bench/step_shape.h"

namespace forge::tools {

/// The operands of a launch, each in an address range of its own. Inputs are known but for ids; counters begin as 0 and
/// keep what kernels write; all else is unknown. Sampling is greedy.
class StepMemory final : public codegen::WalkMemory {
 public:
  /// step: a launch, which must outlive this object.
  StepMemory(const plan::StepT& step, const StepShape& shape);

  std::optional<std::uint32_t> load(std::uint64_t address) override;
  void store(std::uint64_t address, std::optional<std::uint32_t> word) override;

  /// The argument struct of the step's launch: the operands' addresses, then its constants.
  [[nodiscard]] std::vector<std::uint64_t> arguments() const;

 private:
  [[nodiscard]] const plan::Operand* operand_at(std::uint64_t address) const;
  [[nodiscard]] std::optional<std::uint32_t> input(std::uint16_t index, std::int64_t word) const;

  const plan::StepT& step_;
  StepShape shape_;
  std::unordered_map<std::uint64_t, std::optional<std::uint32_t>> counters_;
};

}  // namespace forge::tools
