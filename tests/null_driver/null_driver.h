#pragma once
// A driver that runs in the process, for tests of everything above the driver layer and for the layer's own conformance
// suite.
//
// Copies and fills work on host memory; kernels are functions that the test provides. It is stricter than real drivers:
// it checks every handle, range and device, refuses copies from memory that is not pinned, and refuses everything that
// is forbidden during stream capture. It counts live objects and injects failures.
//
// With NullOptions::deferred, work is kept back until a call waits for it, and then only as much runs as was waited
// for. A missing wait therefore shows up as missing data.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/driver/driver.h"

namespace forge::driver {

struct NullState;

/// Error codes of the null driver: the numbers that HIP and CUDA share.
enum NullCode : int {
  kNullSuccess = 0,
  kNullInvalidValue = 1,
  kNullOutOfMemory = 2,
  kNullNoDevice = 100,
  kNullInvalidDevice = 101,
  kNullInvalidImage = 200,
  kNullInvalidContext = 201,
  kNullInvalidHandle = 400,
  kNullIllegalState = 401,
  kNullNotFound = 500,
  kNullNotReady = 600,
  kNullIllegalAddress = 700,
  kNullOutOfResources = 701,
  kNullLaunchFailed = 719,
  kNullCaptureUnsupported = 900,
  kNullCaptureInvalidated = 901,
  kNullCaptureMerge = 902,
  kNullCaptureUnmatched = 903,
  kNullCaptureUnjoined = 904,
  kNullCaptureIsolation = 905,
  kNullCapturedEvent = 907,
  kNullCaptureWrongThread = 908,
};

/// Properties of the simulated devices.
struct NullOptions {
  int devices = 1;
  int wave_size = 32;
  std::string arch = "null:feature+";
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  ///< per device; allocations beyond it fail
  std::uint32_t lds_bytes = 65536;                      ///< per block
  /// Keep work back until a call waits for it.
  bool deferred = false;
};

/// A launch as the test's kernel function receives it.
struct NullLaunch {
  std::string kernel;
  Dim3 grid, block;
  std::uint32_t lds_bytes = 0;
  LaunchHints hints;
  std::vector<std::vector<std::byte>> args;  ///< bytes of each argument's value

  /// The value of an argument of type T.
  template <typename T>
  [[nodiscard]] T arg(std::size_t index) const {
    T value{};
    if (args.at(index).size() != sizeof(T)) throw Error(ErrorCode::kInternal, "the argument has a different size");
    std::memcpy(&value, args[index].data(), sizeof(T));
    return value;
  }
  /// The memory that an address argument points to.
  template <typename T>
  [[nodiscard]] T* pointer(std::size_t index) const {
    return reinterpret_cast<T*>(arg<Address>(index).value);
  }
};

/// A kernel's work for the whole grid. Must not call the driver.
using NullKernel = std::function<void(const NullLaunch&)>;

/// Description of a kernel in a null module.
struct NullKernelImage {
  std::string name;
  std::vector<std::size_t> arg_bytes;  ///< size of each argument
  FunctionFacts facts{.registers = 32, .lds_bytes = 0, .scratch_bytes = 0, .threads_per_block_max = 1024};
};

/// Called when a module is loaded: returns the function for one of its kernels (an empty one does nothing). `image` is
/// the complete image given to Module. Exceptions are passed on by Module's constructor.
using NullLoader = std::function<NullKernel(const std::string& kernel, std::span<const std::byte> image)>;

/// Builds an image that Module loads on the null driver. Extra bytes appended to it are for the test's NullLoader.
[[nodiscard]] std::vector<std::byte> null_image(std::span<const NullKernelImage> kernels);

/// Live objects, and totals since the driver was created.
struct NullCounts {
  std::uint64_t calls = 0;     ///< calls of all functions, including refused ones
  std::uint64_t executed = 0;  ///< copies, fills, launches and event records that have run
  std::uint64_t pending = 0;   ///< those that are kept back
  std::uint64_t device_blocks = 0, device_bytes = 0, pinned_blocks = 0, pinned_bytes = 0;
  std::uint64_t contexts = 0, streams = 0, events = 0, modules = 0, graphs = 0, graph_execs = 0;
  /// Number of objects that must still be released.
  [[nodiscard]] std::uint64_t held() const {
    return device_blocks + pinned_blocks + contexts + streams + events + modules + graphs + graph_execs;
  }
};

/// The test's control of a null driver. Functions are named as in Api: "mem_alloc", "graph_launch".
class NullControl {
 public:
  explicit NullControl(NullOptions options = {});
  ~NullControl();
  NullControl(const NullControl&) = delete;
  NullControl& operator=(const NullControl&) = delete;

  /// Sets a kernel's function by name. Kernels without one do nothing.
  void set_kernel(const std::string& name, NullKernel kernel);
  /// Sets the loader of modules from now on; its kernels take precedence over set_kernel.
  void set_loader(NullLoader loader);
  /// Makes the nth call of `function` from now on (1: the next) return `code`, once.
  void fail(const std::string& function, std::uint64_t nth = 1, int code = kNullLaunchFailed);
  /// Makes the nth call of any function from now on return `code`, once.
  void fail_call(std::uint64_t nth, int code = kNullLaunchFailed);
  void clear_failures();
  /// Makes every later call fail, as after a fault of a real device.
  void lose_device();
  /// Sets the bytes of memory per device; may be less than what is allocated.
  void limit_memory(std::uint64_t bytes);

  [[nodiscard]] NullCounts counts() const;
  /// Number of calls of `function`.
  [[nodiscard]] std::uint64_t calls(const std::string& function) const;
  [[nodiscard]] NullState& state() { return *state_; }

 private:
  std::unique_ptr<NullState> state_;
};

/// The driver that `control` has.
[[nodiscard]] Driver open_null(std::shared_ptr<NullControl> control);

}  // namespace forge::driver
