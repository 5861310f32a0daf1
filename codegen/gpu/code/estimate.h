#pragma once
// What a launch of a kernel executes, by class of instruction, estimated from its disassembly (walk.h).

#include <array>
#include <optional>

#include "codegen/gpu/code/walk.h"

namespace forge::codegen {

/// The innermost loop with the most matrix instructions.
struct MatrixLoop {
  double turns = 0;              ///< turns each time it is entered, on average
  double others_per_matrix = 0;  ///< other instructions for each matrix instruction
};

/// Wave-instructions of one launch.
struct KernelEstimate {
  std::array<double, kInstructionClasses> by_class{};
  double decisions = 0, guesses = 0;  ///< as in WalkCounts
  int guessed_loops = 0;              ///< loops, counted as one turn, whose number of turns is not known
  bool sampled = false;               ///< some blocks stand for all
  bool complete = true;               ///< false: the counts are a lower bound
  std::optional<MatrixLoop> matrix_loop;

  [[nodiscard]] double of(InstructionClass one) const { return by_class[static_cast<std::size_t>(one)]; }
  [[nodiscard]] double total() const;
  /// Adds another launch. The matrix loop stays that of the launch with more matrix instructions.
  void add(const KernelEstimate& more);
};

[[nodiscard]] KernelEstimate estimate_kernel(const Function& function, const WalkLaunch& launch, WalkMemory& memory,
                                             const WalkOptions& options = {});

}  // namespace forge::codegen
