#pragma once
// Runs GPU kernels on the host, lane by lane. The specialised source is compiled for the host into a shared object
// (kernels/gpu/prelude/prelude_host.h), and each lane is a fibre. The executor is strict; it reports
//   - barriers, shuffles and tile operations that not all lanes of the block or wave reach, or reach at different
//     places;
//   - shared memory that is read before it was written, or accessed by two lanes with a write and no barrier between;
//   - misaligned loads, shuffles from lanes that do not exist, and differing values that must be uniform.
// Buffers (buffer.h) have guards and start as NaN, and the tests that use them are built with AddressSanitizer.
// Blocks run one after another. Between two barriers the lanes of a block do too, wave after wave, in an order that the
// caller chooses: a kernel whose results depend on that order has a race in global memory.
// Cost: a lane that waits for no other lane runs like a function call; every wait costs one switch of stacks.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/gpu/host_lanes.h"

namespace forge::gpu_host {

/// A kernel's mistake, with its place: "matmul: block 3, lane 17: executor.h:12: what".
class LaneFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A kernel of a shared object. The object stays loaded as long as this lives.
struct Kernel {
  std::string name;
  gpu::HostKernel code;
  gpu::HostLanes* lanes;
  std::shared_ptr<void> library;
};

/// A shared object of kernels. It is closed with its last copy and the last of its kernels.
class Module {
 public:
  /// Loads the object. Throws std::runtime_error with the loader's message.
  explicit Module(const std::string& path);
  /// Throws std::runtime_error if there is no kernel of that name.
  [[nodiscard]] Kernel kernel(const std::string& name) const;

 private:
  struct Library;
  std::shared_ptr<Library> library_;
};

enum class Order : std::uint8_t { kForward, kReverse, kShuffled };

struct Launch {
  int blocks = 0;  ///< 0: as many as the kernel declares
  Order order = Order::kForward;
  std::uint32_t seed = 1;  ///< seed of kShuffled
};

/// Runs all blocks of a kernel. `args` points to the kernel's argument struct of args_bytes bytes. Throws LaneFault for
/// a mistake of the kernel and std::runtime_error for a launch that no GPU would accept. Not thread-safe.
void run_kernel(const Kernel& kernel, const Launch& launch, const void* args, std::size_t args_bytes);

template <class Args>
void run_kernel(const Kernel& kernel, const Launch& launch, const Args& args) {
  run_kernel(kernel, launch, &args, sizeof args);
}

}  // namespace forge::gpu_host
