#pragma once
// What the kernels of a plan's step execute on a GPU that is not there, from their disassembly.

#include <memory>
#include <string>
#include <vector>

#include "codegen/gpu/code/estimate.h"
#include "runtime/plan/plan_generated.h"
#include "tools/bench/step_memory.h"

namespace forge::tools {

/// All launches of one kernel in a step.
struct EstimatedKernel {
  std::string kernel;                    ///< the code object's name
  bool samples = false;                  ///< belongs to the sampling of tokens, not to the forward pass
  std::int64_t launches = 0, waves = 0;  ///< waves: of all launches
  double bytes = 0, flops = 0;           ///< weights, activations and cached keys and values; useful arithmetic
  codegen::KernelEstimate work;          ///< of all launches
  /// Of the code object; -1: not known.
  int registers = -1, scalar_registers = -1, spill_bytes = -1, lds_bytes = -1, waves_per_simd = -1;
};

/// Errors: kUsage for a target whose code cannot be read.
void check_readable(const std::string& target);

/// The kernels of the first variant that the step fits into, by the wave-instructions that they execute, most first.
/// Errors: kUsage if no variant fits, or the target's code cannot be read; kDevice without a disassembler; kPlan for a
/// plan with launches that make no sense.
[[nodiscard]] std::vector<EstimatedKernel> estimate_step(const plan::ProgramT& program, const StepShape& shape);

/// The sum, as a kernel called `name`.
[[nodiscard]] EstimatedKernel sum_of(const std::vector<EstimatedKernel>& kernels, std::string name);

}  // namespace forge::tools
