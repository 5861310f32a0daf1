#pragma once
// A driver in this process, for tests of everything above the driver layer and for the layer's own conformance suite.
//
// It runs copies and fills on host memory and kernels as functions of the test; it is stricter than real drivers: it
// checks every handle, range and device, refuses copies from memory that is not pinned, and everything that a stream
// capture forbids. It counts what is alive, and fails where it is told to. `deferred` keeps work back until somebody
// waits for it, and then runs no more than was waited for, so a missing wait shows as missing data.

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

/// Its error codes: the numbers that HIP and CUDA share.
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

struct NullOptions {
  int devices = 1;
  int wave_size = 32;
  std::string arch = "null:feature+";
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  ///< a device; allocations beyond it fail
  std::uint32_t lds_bytes = 65536;                      ///< a block
  bool deferred = false;
};

/// A launch as a test's kernel sees it.
struct NullLaunch {
  std::string kernel;
  Dim3 grid, block;
  std::uint32_t lds_bytes = 0;
  LaunchHints hints;
  std::vector<std::vector<std::byte>> args;  ///< each argument's value

  template <typename T>
  [[nodiscard]] T arg(std::size_t index) const {
    T value{};
    if (args.at(index).size() != sizeof(T)) throw Error(ErrorCode::kInternal, "argument of another size");
    std::memcpy(&value, args[index].data(), sizeof(T));
    return value;
  }
  /// The memory behind an address argument.
  template <typename T>
  [[nodiscard]] T* pointer(std::size_t index) const {
    return reinterpret_cast<T*>(arg<Address>(index).value);
  }
};

/// A kernel's work for the whole grid. It must not call the driver.
using NullKernel = std::function<void(const NullLaunch&)>;

/// A kernel of a null module.
struct NullKernelImage {
  std::string name;
  std::vector<std::size_t> arg_bytes;  ///< each argument's size
  FunctionFacts facts{.registers = 32, .lds_bytes = 0, .scratch_bytes = 0, .threads_per_block_max = 1024};
};

/// Makes a kernel of a module that is being loaded; `image` is all that the Module was given. An empty one does
/// nothing. What it throws comes out of Module's constructor.
using NullLoader = std::function<NullKernel(const std::string& kernel, std::span<const std::byte> image)>;

/// What a null Module loads; bytes that somebody puts behind it are for his NullLoader.
[[nodiscard]] std::vector<std::byte> null_image(std::span<const NullKernelImage> kernels);

/// What is alive, and what has happened.
struct NullCounts {
  std::uint64_t calls = 0;     ///< of any function, refused ones too
  std::uint64_t executed = 0;  ///< copies, fills, launches and events that ran
  std::uint64_t pending = 0;   ///< of those, kept back
  std::uint64_t device_blocks = 0, device_bytes = 0, pinned_blocks = 0, pinned_bytes = 0;
  std::uint64_t contexts = 0, streams = 0, events = 0, modules = 0, graphs = 0, graph_execs = 0;
  /// Everything that somebody has to release.
  [[nodiscard]] std::uint64_t held() const {
    return device_blocks + pinned_blocks + contexts + streams + events + modules + graphs + graph_execs;
  }
};

/// A test's side of a null driver. Functions are named as in Api: "mem_alloc", "graph_launch".
class NullControl {
 public:
  explicit NullControl(NullOptions options = {});
  ~NullControl();
  NullControl(const NullControl&) = delete;
  NullControl& operator=(const NullControl&) = delete;

  /// Kernels without one do nothing.
  void set_kernel(const std::string& name, NullKernel kernel);
  /// For modules loaded from now on; their kernels are the loader's, whatever set_kernel says.
  void set_loader(NullLoader loader);
  /// The nth call of `function` from now on (1 is the next one) returns `code`, once.
  void fail(const std::string& function, std::uint64_t nth = 1, int code = kNullLaunchFailed);
  /// The nth call of any function from now on returns `code`, once.
  void fail_call(std::uint64_t nth, int code = kNullLaunchFailed);
  void clear_failures();
  /// Every later call fails, as after a fault on the card.
  void lose_device();
  /// Bytes a device has; may be less than what is already allocated.
  void limit_memory(std::uint64_t bytes);

  [[nodiscard]] NullCounts counts() const;
  /// How often `function` was called.
  [[nodiscard]] std::uint64_t calls(const std::string& function) const;
  [[nodiscard]] NullState& state() { return *state_; }

 private:
  std::unique_ptr<NullState> state_;
};

/// The driver that `control` has.
[[nodiscard]] Driver open_null(std::shared_ptr<NullControl> control);

}  // namespace forge::driver
