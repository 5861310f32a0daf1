#pragma once
// Devices through the vendors' own drivers: one set of objects over a table of functions loaded at run time.
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
// Construction throws Error; work on streams returns a Status, which must be looked at. Nothing waits for a whole
// device, there is no default stream, and only Stream::synchronize and Event::synchronize block.
// Objects move and release themselves; they keep their device and driver alive, but not each other: a stream's pending
// work must not outlive the buffers and functions that it uses. One object is used by one thread at a time.

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

/// What a driver says about a card; 0 or empty where it does not say.
struct DeviceInfo {
  int ordinal = 0;
  std::string name;    ///< "AMD Radeon RX 7900 XTX"
  std::string arch;    ///< as the driver gives it: "gfx942:sramecc+:xnack-", "sm_90"
  std::string target;  ///< `arch` without features: "gfx942", "sm_90"
  std::string pci;     ///< "0000:03:00.0"
  int wave_size = 0;   ///< lanes: 32 or 64
  std::uint64_t memory_bytes = 0;
  int units = 0;                          ///< compute units (AMD) or SMs (NVIDIA), as the driver counts them
  std::uint32_t lds_bytes_per_block = 0;  ///< the most a block can have, with opt-in where there is one
  std::uint32_t lds_bytes_per_unit = 0;
  int threads_per_block_max = 0;
  int threads_per_unit_max = 0;
  std::array<std::uint32_t, 3> block_max{}, grid_max{};  ///< threads a block, blocks, by dimension
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  std::uint64_t l2_bytes = 0;
  bool integrated = false;  ///< shares the host's memory
};

/// Allocations made through this layer, by all devices of one driver. The engine's promise of no allocation after
/// start is a comparison of `total` before and after.
struct AllocationCounts {
  std::uint64_t live = 0, live_bytes = 0;    ///< now held
  std::uint64_t total = 0, total_bytes = 0;  ///< ever made
};

/// A device address, as kernels take it.
struct Address {
  std::uint64_t value = 0;
  friend constexpr Address operator+(Address base, std::size_t bytes) { return {base.value + bytes}; }
  friend constexpr bool operator==(Address, Address) = default;
};

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// What every card takes as a kernel's parameters.
inline constexpr std::size_t kArgumentBytesMax = 4096;

/// Wishes that a driver may ignore.
struct LaunchHints {
  /// The kernel waits for its predecessor itself and may start before that has ended (NVIDIA's programmatic
  /// dependent launch; AMD has no such thing and ignores it).
  bool overlap_predecessor = false;
};

struct EventOptions {
  bool timing = false;    ///< elapsed times can be asked for
  bool blocking = false;  ///< Event::synchronize sleeps instead of spinning
};

/// What the driver knows of a loaded kernel; -1 where it does not say.
struct FunctionFacts {
  int registers = -1;      ///< vector registers a lane
  int lds_bytes = -1;      ///< static LDS a block
  int scratch_bytes = -1;  ///< private memory a lane: spills and local arrays; 0 is what a decode kernel wants
  int threads_per_block_max = -1;
};

/// A card. A cheap handle: copies are the same device.
class Device {
 public:
  explicit Device(std::shared_ptr<DeviceState> state) : state_(std::move(state)) {}
  [[nodiscard]] const DeviceInfo& info() const;
  [[nodiscard]] Vendor vendor() const;
  /// Bytes that an allocation could take now.
  [[nodiscard]] std::uint64_t free_bytes() const;
  /// Of device memory, by all devices of its driver.
  [[nodiscard]] AllocationCounts allocations() const;
  [[nodiscard]] const std::shared_ptr<DeviceState>& state() const { return state_; }

 private:
  std::shared_ptr<DeviceState> state_;
};

/// A loaded vendor library. A cheap handle.
class Driver {
 public:
  /// Loads and starts a vendor's driver: of several libraries the first that finds a card, else the first. Errors:
  /// kDevice, with what is missing and the package that brings it. A driver without a card opens, with no devices.
  [[nodiscard]] static Driver open(Vendor vendor);
  /// Starts a driver that is there: the tests' own, in their process. Errors: as above.
  [[nodiscard]] static Driver open(std::unique_ptr<Api> api);

  [[nodiscard]] Vendor vendor() const;
  /// Path of the library; "in process" for the tests' null driver.
  [[nodiscard]] std::string library() const;
  /// "5.2.21153" (HIP), "13.0" (CUDA).
  [[nodiscard]] std::string version() const;
  [[nodiscard]] std::span<const DeviceInfo> devices() const;
  /// Errors: kUsage when there is no such device, kDevice when it cannot be opened.
  [[nodiscard]] Device device(int ordinal) const;
  [[nodiscard]] AllocationCounts device_allocations() const;
  [[nodiscard]] AllocationCounts pinned_allocations() const;
  /// Destructors cannot throw: failed releases are counted here. 0 unless a device was lost or there is a bug.
  [[nodiscard]] std::uint64_t failed_releases() const;

 private:
  explicit Driver(std::shared_ptr<DriverState> state) : state_(std::move(state)) {}
  static Driver started(std::shared_ptr<DriverState> state);
  std::shared_ptr<DriverState> state_;
};

enum class HandleKind : std::uint8_t { kDeviceMemory, kPinnedMemory, kStream, kEvent, kModule, kGraphExec };

/// Owner of one of the driver's handles on a device, or of memory that the driver gave.
class Handle {
 public:
  Handle() = default;
  /// Empty until the driver has written to out().
  Handle(HandleKind kind, std::shared_ptr<DeviceState> device) : device_(std::move(device)), kind_(kind) {}
  /// Memory, taken and counted; none for 0 bytes. Errors: as Buffer's.
  Handle(HandleKind kind, const Device& device, std::size_t bytes, std::string_view what);
  Handle(Handle&& other) noexcept { *this = std::move(other); }
  Handle& operator=(Handle&& other) noexcept;
  ~Handle() { release(); }
  [[nodiscard]] void* get() const { return handle_; }
  [[nodiscard]] void** out() { return &handle_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< of memory
  [[nodiscard]] const std::shared_ptr<DeviceState>& device() const { return device_; }

 private:
  void release() noexcept;
  std::shared_ptr<DeviceState> device_;
  void* handle_ = nullptr;
  std::size_t bytes_ = 0;
  HandleKind kind_ = HandleKind::kStream;
};

/// Device memory. `what` names it in errors ("KV pool"). Errors: kMemory with the numbers, kDevice.
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

/// Page-locked host memory, visible to the device at the same address. Errors: as Buffer's.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const Device& device, std::size_t bytes, std::string_view what)
      : memory_(HandleKind::kPinnedMemory, device, bytes, what) {}
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  [[nodiscard]] std::size_t bytes() const { return memory_.bytes(); }
  [[nodiscard]] std::span<std::byte> span() const { return {data(), bytes()}; }
  /// The same memory as a kernel's argument.
  [[nodiscard]] Address address() const { return {reinterpret_cast<std::uint64_t>(memory_.get())}; }

 private:
  Handle memory_;
};

class Stream;

/// A point in a stream's work.
class Event {
 public:
  explicit Event(const Device& device, EventOptions options = {});
  Status record(const Stream& stream);
  /// kNotReady until the work recorded last has been done.
  [[nodiscard]] Status query() const;
  /// Blocks the calling thread.
  Status synchronize() const;
  /// Milliseconds between two events with EventOptions::timing that have both happened.
  static Status elapsed(const Event& from, const Event& to, float* milliseconds);

 private:
  friend class Stream;
  Handle handle_;
};

class Module;

/// A kernel of a loaded module; valid as long as that. A cheap handle.
class Function {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] FunctionFacts facts() const;
  /// Lets launches ask for `bytes` of dynamic LDS: some cards grant little without it. Errors: kDevice.
  void allow_lds(std::uint32_t bytes) const;
  /// Blocks of `threads` and `lds_bytes` dynamic LDS that one unit can hold at once. Errors: kDevice.
  [[nodiscard]] int occupancy(int threads, std::size_t lds_bytes) const;

 private:
  friend class Module;
  friend class Stream;
  std::shared_ptr<DeviceState> device_;
  void* function_ = nullptr;
  std::string name_;
};

/// A code object on a device. `what` names it in errors. Errors: kDevice (wrong target, damaged).
class Module {
 public:
  Module(const Device& device, std::span<const std::byte> image, std::string_view what);
  /// Errors: kDevice when the module has no such kernel.
  [[nodiscard]] Function function(const std::string& name) const;

 private:
  Handle handle_;
  std::string what_;
};

/// Work in order. Ranges are in bytes and must lie within the buffers; others are refused.
class Stream {
 public:
  explicit Stream(const Device& device);
  [[nodiscard]] Device device() const;

  Status upload(const Buffer& to, std::size_t to_offset, const PinnedBuffer& from, std::size_t from_offset,
                std::size_t bytes) const;
  Status download(const PinnedBuffer& to, std::size_t to_offset, const Buffer& from, std::size_t from_offset,
                  std::size_t bytes) const;
  Status copy(const Buffer& to, std::size_t to_offset, const Buffer& from, std::size_t from_offset,
              std::size_t bytes) const;
  Status fill(const Buffer& to, std::size_t offset, std::uint8_t value, std::size_t bytes) const;
  /// `offset` in bytes, a multiple of 4; `words` of 4 bytes.
  Status fill_words(const Buffer& to, std::size_t offset, std::uint32_t value, std::size_t words) const;

  /// Later work of this stream starts after what `event` recorded last.
  Status wait(const Event& event) const;
  /// `args`: a pointer to each argument's value, in the kernel's order; the values are copied by the call.
  Status launch_args(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes,
                     std::span<void* const> args, LaunchHints hints = {}) const;
  /// The same with the values themselves; buffers are passed as their address().
  template <typename... Args>
  Status launch(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes, const Args&... values) const {
    static_assert((std::is_trivially_copyable_v<Args> && ...), "kernel arguments are plain data");
    static_assert((!std::is_same_v<Args, LaunchHints> && ...), "hints go to launch_args");
    std::array<void*, sizeof...(Args)> args{const_cast<void*>(static_cast<const void*>(&values))...};
    return launch_args(function, grid, block, lds_bytes, args);
  }
  /// For a kernel whose only parameter is a struct by value, as all generated kernels are: `args` are its bytes, copied
  /// by the call; exactly the struct's size and at most kArgumentBytesMax.
  Status launch_block(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes,
                      std::span<const std::byte> args, LaunchHints hints = {}) const;
  /// kNotReady while work is pending.
  [[nodiscard]] Status query() const;
  /// Blocks the calling thread until this stream's work is done.
  Status synchronize() const;

 private:
  friend class Event;
  friend class GraphExec;
  Status launch_checked(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes, void** args,
                        std::size_t only_arg_bytes, LaunchHints hints) const;
  Handle handle_;
};

/// Recorded work, replayed with one call.
class GraphExec {
 public:
  /// Records what `body` puts on `stream` (and on streams joined to it by events) instead of running it. `body` must
  /// not allocate, synchronise or query. Errors: kDevice; what `body` throws passes through, and recording ends.
  template <typename Body>
  [[nodiscard]] static GraphExec record(const Stream& stream, std::string_view what, Body&& body) {
    Recording recording(stream, what);
    std::forward<Body>(body)();
    return recording.finish();
  }
  /// Moves what the graph needs to the device ahead of its first launch, where the driver can.
  Status upload(const Stream& stream) const;
  Status launch(const Stream& stream) const;

 private:
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

/// What a run-time compiler made of a source.
struct CompileResult {
  std::vector<std::byte> code;  ///< a code object (AMD), a cubin or PTX (NVIDIA); empty after a failure
  std::string log;              ///< the compiler's messages, warnings too
  std::string failure;          ///< "hiprtcCompileProgram: HIPRTC_ERROR_COMPILATION (6)"; empty when it went well
  [[nodiscard]] bool ok() const { return failure.empty(); }
};

/// hipRTC or NVRTC. Needs no card. Compilers crash on targets that they do not know (hipRTC 5.2 aborts the process
/// for gfx1100): call it in a process of its own.
class RuntimeCompiler {
 public:
  /// Errors: kDevice, with what is missing and the package that brings it.
  [[nodiscard]] static RuntimeCompiler open(Vendor vendor);
  RuntimeCompiler(RuntimeCompiler&&) noexcept;
  RuntimeCompiler& operator=(RuntimeCompiler&&) noexcept;
  ~RuntimeCompiler();
  [[nodiscard]] std::string library() const;
  [[nodiscard]] std::string version() const;
  /// `name` is the source's name in messages; `options` are the compiler's own ("--offload-arch=gfx1030",
  /// "--gpu-architecture=sm_90").
  [[nodiscard]] CompileResult compile(const std::string& source, const std::string& name,
                                      std::span<const std::string> options) const;

 private:
  class Impl;
  explicit RuntimeCompiler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// One thing that is not there, and what brings it.
struct MissingPart {
  std::string what;     ///< "libnvrtc.so"
  std::string package;  ///< the Debian package, or what else to do
};

/// What probe_drivers found of one vendor.
struct DriverReport {
  Vendor vendor = Vendor::kNull;
  std::string library, version;                    ///< empty when the driver did not load
  std::string compiler_library, compiler_version;  ///< empty when the run-time compiler did not load
  std::vector<DeviceInfo> devices;
  std::vector<MissingPart> missing;
  std::vector<std::string> problems;  ///< one line each: what failed and why
  [[nodiscard]] bool usable() const { return !devices.empty(); }
};

/// AMD and NVIDIA, in this order. Never throws; opens no device's context.
[[nodiscard]] std::vector<DriverReport> probe_drivers() noexcept;

}  // namespace forge::driver
