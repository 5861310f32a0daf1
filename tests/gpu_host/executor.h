#pragma once
// Runs device kernels on the host, lane by lane: the same specialised source, built for the host into a shared object
// (kernels/gpu/prelude/prelude_host.h), each lane a fibre. It is strict; it reports
//   - barriers, shuffles and tiles that not all lanes of the block or wave reach, or reach in different places;
//   - shared memory that is read before it was written, or written and used by two lanes with no barrier between;
//   - misaligned loads, shuffles from lanes that are not there, differing values that were promised to be uniform.
// Buffers (buffer.h) have guards and start as NaNs, and the tests that use this are built with AddressSanitizer.
// Blocks run one after another and the lanes of a block between two barriers too, wave after wave, in an order that the
// caller picks: a kernel whose results depend on it has a race in global memory.
// A lane that meets no other runs like a function call; one that does costs a jump of stacks a meeting.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/gpu/host_lanes.h"

namespace forge::gpu_host {

/// What a kernel did wrong: "matmul: block 3, lane 17: executor.h:12: what".
class LaneFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A kernel of a shared object, which stays loaded as long as this lives.
struct Kernel {
  std::string name;
  gpu::HostKernel code;
  gpu::HostLanes* lanes;
  std::shared_ptr<void> library;
};

/// A shared object of kernels; closed with the last copy and the last of its kernels.
class Module {
 public:
  /// Throws std::runtime_error with the loader's words.
  explicit Module(const std::string& path);
  /// Throws std::runtime_error for a name that it does not have.
  [[nodiscard]] Kernel kernel(const std::string& name) const;

 private:
  struct Library;
  std::shared_ptr<Library> library_;
};

enum class Order : std::uint8_t { kForward, kReverse, kShuffled };

struct Launch {
  int blocks = 0;  ///< 0: as many as the kernel says
  Order order = Order::kForward;
  std::uint32_t seed = 1;  ///< of kShuffled
};

/// Runs all blocks of a kernel. `args` is the kernel's struct of args_bytes bytes. Throws LaneFault for what the
/// kernel did wrong, std::runtime_error for a launch that no card would take. Not for several threads at once.
void run_kernel(const Kernel& kernel, const Launch& launch, const void* args, std::size_t args_bytes);

template <class Args>
void run_kernel(const Kernel& kernel, const Launch& launch, const Args& args) {
  run_kernel(kernel, launch, &args, sizeof args);
}

}  // namespace forge::gpu_host
