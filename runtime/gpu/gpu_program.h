#pragma once
// Decodes a plan's GPU program: loads every kernel, resolves every address and checks every number once, so that
// replaying it needs no checks. What the kernels' code does with its addresses is not checked: a plan's code is trusted
// like any program that the user runs.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/driver/driver.h"
#include "runtime/gpu/gpu_memory.h"
#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

/// Start addresses of the memory blocks on the device.
struct GpuAddresses {
  driver::Address weights, arena, kv, io;
  driver::Address recurrent;  ///< null if the program has no recurrent state
  driver::Address sampled;    ///< pinned host memory
};

/// A kernel launch with all arguments resolved; can be enqueued any number of times.
struct GpuLaunch {
  const driver::Function* function = nullptr;
  driver::Dim3 blocks, threads;
  std::uint32_t lds_bytes = 0;
  driver::LaunchHints hints;
  std::vector<std::uint64_t> args;  ///< the kernel's argument struct: 8-byte members

  driver::Status on(const driver::Stream& stream) const { return on(stream, hints); }
  driver::Status on(const driver::Stream& stream, driver::LaunchHints with) const {
    return stream.launch_block(*function, blocks, threads, lds_bytes, std::as_bytes(std::span(args)), with);
  }
};

/// A decoded variant: bounds, input layout and launches.
struct GpuVariant {
  std::string name;
  std::size_t tokens = 0, rows = 0, sequences = 0, table_blocks = 0;
  std::size_t hidden_width = 0;  ///< width of the hidden rows that it outputs; 0: it outputs logits
  StepIoLayout io;
  std::vector<GpuLaunch> forward, sample;  ///< `sample` is empty if the host samples
  /// True if a step produces the next step's inputs by itself: one token per sequence, and every row is sampled.
  [[nodiscard]] bool loops() const { return !sample.empty() && tokens == rows && tokens == sequences; }
};

/// The loaded code objects of a program; each holds one kernel.
class GpuKernels {
 public:
  struct Kernel {
    std::string name;
    driver::Module module;
    driver::Function function;
    driver::FunctionFacts facts;
  };

  /// Errors: kPlan if code objects have no name or the same name; kDevice if one cannot be loaded.
  GpuKernels(const plan::ProgramT& program, const driver::Device& device);

  /// Returns a launch of the kernel without arguments; callers may change `blocks`. Errors: kPlan if the code object
  /// does not exist or the launch exceeds the device's limits, with the numbers.
  [[nodiscard]] GpuLaunch launch(const plan::LaunchT& launch) const;

 private:
  const driver::DeviceInfo& device_;
  std::vector<Kernel> kernels_;  ///< index: the plan's code object
};

/// Resolves operands to device addresses. All spaces except File, and Input only if `inputs` (a variant's layout) is
/// given. Errors: kPlan if an operand is outside its block.
class GpuResolver {
 public:
  GpuResolver(const plan::ProgramT& program, const GpuMemory& memory, const GpuAddresses& addresses)
      : program_(program), memory_(memory), addresses_(addresses) {}
  [[nodiscard]] driver::Address address(const plan::Operand& of, const StepIoLayout* inputs) const;

 private:
  [[nodiscard]] driver::Address input(const plan::Operand& of, const StepIoLayout* inputs) const;
  [[nodiscard]] driver::Address kv(const plan::Operand& of) const;
  [[nodiscard]] driver::Address recurrent(const plan::Operand& of) const;
  const plan::ProgramT& program_;
  const GpuMemory& memory_;
  GpuAddresses addresses_;
};

/// Decodes all variants. Errors: kPlan, naming the variant and the step.
[[nodiscard]] std::vector<GpuVariant> decode_gpu_variants(const plan::ProgramT& program, const GpuMemory& memory,
                                                          const GpuResolver& resolver, const GpuKernels& kernels);

}  // namespace forge::runtime
