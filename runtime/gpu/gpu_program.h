#pragma once
// A plan's GPU program with every kernel loaded, every address resolved and every number checked. What a kernel does
// with its addresses is its own: a plan's code is run as it stands, as any program is.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/driver/driver.h"
#include "runtime/gpu/gpu_memory.h"
#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

/// Where the blocks begin on the device.
struct GpuAddresses {
  driver::Address weights, arena, kv, io;
  driver::Address sampled;  ///< in pinned memory
};

/// One kernel launch, ready to be made any number of times.
struct GpuLaunch {
  const driver::Function* function = nullptr;
  driver::Dim3 blocks, threads;
  std::uint32_t lds_bytes = 0;
  driver::LaunchHints hints;
  std::vector<std::uint64_t> args;  ///< the kernel's struct

  driver::Status on(const driver::Stream& stream) const { return on(stream, hints); }
  driver::Status on(const driver::Stream& stream, driver::LaunchHints with) const {
    return stream.launch_block(*function, blocks, threads, lds_bytes, std::as_bytes(std::span(args)), with);
  }
};

struct GpuVariant {
  std::string name;
  std::size_t tokens = 0, rows = 0, sequences = 0, table_blocks = 0;
  StepIoLayout io;
  std::vector<GpuLaunch> forward, sample;  ///< `sample` is empty where tokens are not chosen on the device
  /// Does a step make the next one's inputs: a token of each sequence, and all rows chosen?
  [[nodiscard]] bool loops() const { return !sample.empty() && tokens == rows && tokens == sequences; }
};

/// The code objects of a program on a device, one kernel each.
class GpuKernels {
 public:
  struct Kernel {
    std::string name;
    driver::Module module;
    driver::Function function;
    driver::FunctionFacts facts;
  };

  /// Errors: kPlan for code objects without a name or with the same one; kDevice when one does not load.
  GpuKernels(const plan::ProgramT& program, const driver::Device& device);

  /// The kernel and what a launch of it needs, but for its arguments; `blocks` may be set later. Errors: kPlan for a
  /// code object that is not there and for a launch beyond the device's limits, with the numbers.
  [[nodiscard]] GpuLaunch launch(const plan::LaunchT& launch) const;

 private:
  const driver::DeviceInfo& device_;
  std::vector<Kernel> kernels_;  ///< by code object
};

/// The address of an operand in all of a program's spaces but Space::File and, without a variant, Space::Input.
/// Errors: kPlan when it leaves its block.
class GpuResolver {
 public:
  GpuResolver(const plan::ProgramT& program, const GpuMemory& memory, const GpuAddresses& addresses)
      : program_(program), memory_(memory), addresses_(addresses) {}
  [[nodiscard]] driver::Address address(const plan::Operand& of, const StepIoLayout* inputs) const;

 private:
  [[nodiscard]] driver::Address input(const plan::Operand& of, const StepIoLayout* inputs) const;
  [[nodiscard]] driver::Address kv(const plan::Operand& of) const;
  const plan::ProgramT& program_;
  const GpuMemory& memory_;
  GpuAddresses addresses_;
};

/// All variants. Errors: kPlan naming variant and step.
[[nodiscard]] std::vector<GpuVariant> decode_gpu_variants(const plan::ProgramT& program, const GpuMemory& memory,
                                                          const GpuResolver& resolver, const GpuKernels& kernels);

}  // namespace forge::runtime
