#pragma once
// The driver layer: GPUs through the vendors' drivers (HIP, CUDA), which are loaded at run time with dlopen. Used by
// runtime/gpu (executor), codegen/gpu (run-time compilers) and the tools.
//
//   auto driver = Driver::open(Vendor::kAmd);            // throws where there is no such driver
//   Device device = driver.device(0);
//   Buffer arena(device, bytes, "arena");
//   Stream stream(device);
//   Module module(device, code_object, "rms_norm");
//   Function kernel = module.function("rms_norm_4096");
//   GraphExec forward = GraphExec::record(stream, "forward", [&] { stream.launch(kernel, {64}, {256}, 0, ...); });
//   forward.launch(stream).check("a decode step");
//
// Errors: constructors throw Error; work on streams returns a Status, which must not be ignored. Only
// Stream::synchronize and Event::synchronize block; nothing waits for a whole device, and there is no default stream.
//
// Ownership: objects are movable and release their handle on destruction. They keep their device and driver alive, but
// not each other: the buffers and functions that a stream's pending work uses must outlive that work. An object is used
// by one thread at a time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/driver/status.h"

namespace forge::driver {

struct DriverState;
struct DeviceState;

/// Properties of a device as the driver reports them; 0 or empty if it does not.
struct DeviceInfo {
  int ordinal = 0;
  std::string name;    ///< e.g. "AMD Radeon RX 7900 XTX"
  std::string arch;    ///< as the driver reports it: "gfx942:sramecc+:xnack-", "sm_90"
  std::string target;  ///< `arch` without feature flags: "gfx942", "sm_90"
  std::string pci;     ///< e.g. "0000:03:00.0"
  int wave_size = 0;   ///< lanes of a wave (warp): 32 or 64
  std::uint64_t memory_bytes = 0;
  int units = 0;                          ///< compute units (AMD) or SMs (NVIDIA), as the driver counts them
  std::uint32_t lds_bytes_per_block = 0;  ///< LDS (shared memory): most bytes a block can have, with opt-in if needed
  std::uint32_t lds_bytes_per_unit = 0;
  int threads_per_block_max = 0;
  int threads_per_unit_max = 0;
  std::array<std::uint32_t, 3> block_max{}, grid_max{};  ///< limits per dimension: threads of a block, blocks of a grid
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  std::uint64_t l2_bytes = 0;
  bool integrated = false;  ///< shares memory with the host
};

/// Allocations made through this layer by all devices of one driver. Comparing `total` before and after proves that
/// steps allocate nothing.
struct AllocationCounts {
  std::uint64_t live = 0, live_bytes = 0;    ///< currently allocated
  std::uint64_t total = 0, total_bytes = 0;  ///< since the start
};

/// A device address as kernels receive it.
struct Address {
  std::uint64_t value = 0;
  friend constexpr Address operator+(Address base, std::size_t bytes) { return {base.value + bytes}; }
  friend constexpr bool operator==(Address, Address) = default;
};

/// Extents of a grid (in blocks) or a block (in threads).
struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// Most bytes of kernel parameters that all supported devices accept.
inline constexpr std::size_t kArgumentBytesMax = 4096;

/// Hints that a driver may ignore.
struct LaunchHints {
  /// The kernel waits for its predecessor by itself and may start before that has ended: programmatic dependent launch
  /// on NVIDIA; ignored on AMD, which has no equivalent.
  bool overlap_predecessor = false;
};

struct EventOptions {
  bool timing = false;    ///< Event::elapsed can be used
  bool blocking = false;  ///< Event::synchronize sleeps instead of spinning
};

/// Properties of a loaded kernel; -1 if the driver does not report them.
struct FunctionFacts {
  int registers = -1;      ///< vector registers per lane
  int lds_bytes = -1;      ///< static LDS per block
  int scratch_bytes = -1;  ///< private memory per lane (spills and local arrays); should be 0 in decode kernels
  int threads_per_block_max = -1;
};

/// An opened device. A cheap handle: copies refer to the same device.
class Device {
 public:
  explicit Device(std::shared_ptr<DeviceState> state) : state_(std::move(state)) {}
  [[nodiscard]] const DeviceInfo& info() const;
  [[nodiscard]] Vendor vendor() const;
  /// Bytes that can be allocated now.
  [[nodiscard]] std::uint64_t free_bytes() const;
  /// Device memory allocations of all devices of this driver.
  [[nodiscard]] AllocationCounts allocations() const;
  [[nodiscard]] const std::shared_ptr<DeviceState>& state() const { return state_; }

 private:
  std::shared_ptr<DeviceState> state_;
};

/// A loaded vendor driver. A cheap handle.
class Driver {
 public:
  /// Loads and initialises a vendor's driver. If several libraries are installed, takes the first that finds a device,
  /// otherwise the first that works. A driver without devices is not an error. Errors: kDevice, saying what is missing
  /// and which package provides it.
  [[nodiscard]] static Driver open(Vendor vendor);
  /// Starts a driver that exists already, e.g. the tests' null driver. Errors: as above.
  [[nodiscard]] static Driver start(std::unique_ptr<Api> api);

  [[nodiscard]] Vendor vendor() const;
  /// Path of the library; "in process" for the tests' null driver.
  [[nodiscard]] std::string library() const;
  /// E.g. "5.2.21153" (HIP), "13.0" (CUDA).
  [[nodiscard]] std::string version() const;
  [[nodiscard]] std::span<const DeviceInfo> devices() const;
  /// Opens device `ordinal`, counted from 0. Errors: kUsage if it does not exist, kDevice if it cannot be opened.
  [[nodiscard]] Device device(int ordinal) const;
  [[nodiscard]] AllocationCounts device_allocations() const;
  [[nodiscard]] AllocationCounts pinned_allocations() const;
  /// Number of failed releases (destructors cannot throw). 0 unless a device was lost or there is a bug.
  [[nodiscard]] std::uint64_t failed_releases() const;

 private:
  explicit Driver(std::shared_ptr<DriverState> state) : state_(std::move(state)) {}
  static Driver started(std::shared_ptr<DriverState> state);
  std::shared_ptr<DriverState> state_;
};

enum class HandleKind : std::uint8_t { kDeviceMemory, kPinnedMemory, kStream, kEvent, kModule, kGraphExec };

/// Owner of one driver handle or of one block of memory from the driver. Base of the classes below.
class Handle {
 public:
  Handle() = default;
  /// An empty handle; the driver writes the handle to out().
  Handle(HandleKind kind, std::shared_ptr<DeviceState> device) : device_(std::move(device)), kind_(kind) {}
  /// Allocates and counts memory; nothing for 0 bytes. Errors: as Buffer's.
  Handle(HandleKind kind, const Device& device, std::size_t bytes, std::string_view what);
  Handle(Handle&& other) noexcept { *this = std::move(other); }
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { release(); }
  [[nodiscard]] void* get() const { return handle_; }
  [[nodiscard]] void** out() { return &handle_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< size of memory; 0 for other kinds
  [[nodiscard]] const std::shared_ptr<DeviceState>& device() const { return device_; }

 private:
  void release() noexcept;
  std::shared_ptr<DeviceState> device_;
  void* handle_ = nullptr;
  std::size_t bytes_ = 0;
  HandleKind kind_ = HandleKind::kStream;
};

/// Device memory. `what` names it in errors ("KV pool"). Errors: kMemory with requested and free bytes, kDevice.
class Buffer {
 public:
  Buffer() = default;  ///< empty: 0 bytes
  Buffer(const Device& device, std::size_t bytes, std::string_view what)
      : memory_(HandleKind::kDeviceMemory, device, bytes, what) {}
  [[nodiscard]] Address address() const { return {reinterpret_cast<std::uint64_t>(memory_.get())}; }
  [[nodiscard]] std::size_t bytes() const { return memory_.bytes(); }

 private:
  friend class Stream;
  Handle memory_;
};

/// Page-locked (pinned) host memory, visible to the device at the same address. Errors: as Buffer's.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const Device& device, std::size_t bytes, std::string_view what)
      : memory_(HandleKind::kPinnedMemory, device, bytes, what) {}
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  [[nodiscard]] std::size_t bytes() const { return memory_.bytes(); }
  [[nodiscard]] std::span<std::byte> span() const { return {data(), bytes()}; }
  /// The same memory as a kernel argument.
  [[nodiscard]] Address address() const { return {reinterpret_cast<std::uint64_t>(memory_.get())}; }

 private:
  Handle memory_;
};

class Stream;

/// A point in a stream's work that can be waited for.
class Event {
 public:
  explicit Event(const Device& device, EventOptions options = {});
  Status record(const Stream& stream);
  /// kNotReady until the work that was recorded last is done.
  [[nodiscard]] Status query() const;
  /// Blocks the calling thread until the work is done.
  Status synchronize() const;
  /// Milliseconds between two events, which need EventOptions::timing and must both have happened.
  static Status elapsed(const Event& from, const Event& to, float* milliseconds);

 private:
  friend class Stream;
  Handle handle_;
};

class Module;

/// A kernel of a loaded module, which must outlive it. A cheap handle.
class Function {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] FunctionFacts facts() const;
  /// Allows launches with `bytes` of dynamic LDS; some devices allow only little without it. Errors: kDevice.
  void allow_lds(std::uint32_t bytes) const;
  /// Number of blocks of `threads` threads with `lds_bytes` of dynamic LDS that one compute unit can hold at once.
  /// Errors: kDevice.
  [[nodiscard]] int occupancy(int threads, std::size_t lds_bytes) const;

 private:
  friend class Module;
  friend class Stream;
  std::shared_ptr<DeviceState> device_;
  void* function_ = nullptr;
  std::string name_;
};

/// A code object loaded on a device. `what` names it in errors. Errors: kDevice (wrong target, damaged).
class Module {
 public:
  Module(const Device& device, std::span<const std::byte> image, std::string_view what);
  /// Finds a kernel by its symbol. Errors: kDevice if the module has none of this name.
  [[nodiscard]] Function function(const std::string& name) const;

 private:
  Handle handle_;
  std::string what_;
};

/// A queue of work that is executed in order. Ranges are in bytes; a range outside of its buffer is refused (kRefused).
class Stream {
 public:
  explicit Stream(const Device& device);
  [[nodiscard]] Device device() const;

  // Asynchronous copies: host to device, device to host, within the device (ranges must not overlap), and fills.
  Status upload(const Buffer& to, std::size_t to_offset, const PinnedBuffer& from, std::size_t from_offset,
                std::size_t bytes) const;
  Status download(const PinnedBuffer& to, std::size_t to_offset, const Buffer& from, std::size_t from_offset,
                  std::size_t bytes) const;
  Status copy(const Buffer& to, std::size_t to_offset, const Buffer& from, std::size_t from_offset,
              std::size_t bytes) const;
  Status fill(const Buffer& to, std::size_t offset, std::uint8_t value, std::size_t bytes) const;
  /// Fills `words` 32-bit words; `offset` is in bytes and must be a multiple of 4.
  Status fill_words(const Buffer& to, std::size_t offset, std::uint32_t value, std::size_t words) const;

  /// Makes later work of this stream wait for what `event` recorded last.
  Status wait(const Event& event) const;
  /// Launches a kernel. args[i] points to the value of argument i; the values are copied during the call.
  Status launch_args(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes,
                     std::span<void* const> args, LaunchHints hints = {}) const;
  /// The same with the values themselves; pass buffers as their address().
  template <typename... Args>
  Status launch(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes, const Args&... values) const {
    static_assert((std::is_trivially_copyable_v<Args> && ...), "kernel arguments are plain data");
    static_assert((!std::is_same_v<Args, LaunchHints> && ...), "hints go to launch_args");
    std::array<void*, sizeof...(Args)> args{const_cast<void*>(static_cast<const void*>(&values))...};
    return launch_args(function, grid, block, lds_bytes, args);
  }
  /// Launches a kernel whose only parameter is a struct passed by value, as all generated kernels have. `args` are the
  /// struct's bytes, exactly its size and at most kArgumentBytesMax; they are copied during the call.
  Status launch_block(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes,
                      std::span<const std::byte> args, LaunchHints hints = {}) const;
  /// kNotReady while work is pending.
  [[nodiscard]] Status query() const;
  /// Blocks the calling thread until all work of this stream is done.
  Status synchronize() const;

 private:
  friend class Event;
  friend class GraphExec;
  Status launch_checked(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes, void** args,
                        std::size_t single_arg_bytes, LaunchHints hints) const;
  Handle handle_;
};

/// A captured graph of work that is launched with one call.
class GraphExec {
 public:
  /// Runs `body` and records the work that it puts on `stream` (and on streams joined to it by events) instead of
  /// executing it. `body` must not allocate, synchronise or query. Errors: kDevice; an exception of `body` ends the
  /// recording and is passed on.
  template <typename Body>
  [[nodiscard]] static GraphExec record(const Stream& stream, std::string_view what, Body&& body) {
    Recording recording(stream, what);
    std::forward<Body>(body)();
    return recording.finish();
  }
  /// Prepares the graph on the device before its first launch, if the driver supports that.
  Status upload(const Stream& stream) const;
  Status launch(const Stream& stream) const;

 private:
  /// Ends the capture on every path, so that the stream stays usable.
  class Recording {
   public:
    Recording(const Stream& stream, std::string_view what);
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording();
    GraphExec finish();

   private:
    const Stream& stream_;
    std::string what_;
    bool open_ = true;
  };
  explicit GraphExec(Handle handle) : handle_(std::move(handle)) {}
  Handle handle_;
};

/// Result of a run-time compilation.
struct CompileResult {
  std::vector<std::byte> code;  ///< code object (AMD), cubin or PTX (NVIDIA); empty after a failure
  std::string log;              ///< the compiler's messages, including warnings
  std::string failure;          ///< e.g. "hiprtcCompileProgram: HIPRTC_ERROR_COMPILATION (6)"; empty on success
  [[nodiscard]] bool ok() const { return failure.empty(); }
};

/// hipRTC or NVRTC. Needs no device. These compilers can crash on targets that they do not support (hipRTC 5.2 aborts
/// the process for gfx1100), so use them in a separate process.
class RuntimeCompiler {
 public:
  /// Errors: kDevice, saying what is missing and which package provides it.
  [[nodiscard]] static RuntimeCompiler open(Vendor vendor);
  RuntimeCompiler(RuntimeCompiler&&) noexcept;
  RuntimeCompiler& operator=(RuntimeCompiler&&) noexcept;
  ~RuntimeCompiler();
  [[nodiscard]] std::string library() const;
  [[nodiscard]] std::string version() const;
  /// `name` is the source's file name in messages. `options` are the compiler's own, e.g. "--offload-arch=gfx1030",
  /// "--gpu-architecture=sm_90".
  [[nodiscard]] CompileResult compile(const std::string& source, const std::string& name,
                                      std::span<const std::string> options) const;

 private:
  class Impl;
  explicit RuntimeCompiler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Something that is not installed, and how to get it.
struct MissingPart {
  std::string what;     ///< e.g. "libnvrtc.so"
  std::string package;  ///< Debian package, or another remedy
};

/// What probe_drivers found for one vendor.
struct DriverReport {
  Vendor vendor = Vendor::kNull;
  std::string library, version;                    ///< empty if the driver could not be loaded
  std::string compiler_library, compiler_version;  ///< empty if the run-time compiler could not be loaded
  std::vector<DeviceInfo> devices;
  std::vector<MissingPart> missing;
  std::vector<std::string> problems;  ///< one line each: what failed and why
  [[nodiscard]] bool usable() const { return !devices.empty(); }
};

/// Reports for AMD and NVIDIA, in this order. Never throws; does not create a device context.
[[nodiscard]] std::vector<DriverReport> probe_drivers() noexcept;

}  // namespace forge::driver
