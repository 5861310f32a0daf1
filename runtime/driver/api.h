#pragma once
// The internal interface between the objects of driver.h and the drivers: one implementation ("column") per vendor
// (column_hip.cc, column_cuda.cc) and one for the null driver (null_column.cc). Private to runtime/driver and its
// tests.
//
// Handles (streams, events, modules, functions, graphs) are the vendor's pointers as void*. Calls act on the calling
// thread's current device; the objects of driver.h make their device current first. There is no default stream, no
// device-wide synchronisation and no blocking copy in this interface, so none can be used by mistake.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/driver/driver.h"
#include "runtime/driver/status.h"

namespace forge::driver {

/// A row of functions.def: one function that is loaded from a vendor's library.
struct FunctionRow {
  const char* library;  ///< "hip", "hiprtc", "cuda" or "nvrtc"
  const char* name;     ///< symbol name
  bool required;        ///< a library without it is refused
};
/// All rows of functions.def, whether or not this build supports their vendor.
[[nodiscard]] std::span<const FunctionRow> function_rows();

/// One kernel launch. args[i] points to the value of argument i.
struct LaunchCall {
  void* function;
  void* stream;
  Dim3 grid, block;  ///< grid in blocks, block in threads
  std::uint32_t lds_bytes;
  void** args;
  std::size_t single_arg_bytes;  ///< size of args[0] if it is the only argument and its size is known; otherwise 0
  LaunchHints hints;
};

/// The driver functions of one vendor. Every call returns a Status with the vendor's code; nothing throws.
class Api {
 public:
  Api() = default;
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;
  virtual ~Api() = default;

  [[nodiscard]] virtual Vendor vendor() const noexcept = 0;
  /// Path of the loaded library, as the loader resolved it.
  [[nodiscard]] virtual std::string library() const = 0;
  /// Name ("hipErrorOutOfMemory") and text of a code; never null.
  [[nodiscard]] virtual const char* code_name(int code) const noexcept = 0;
  [[nodiscard]] virtual const char* code_text(int code) const noexcept = 0;
  /// Maps a vendor's error code to what callers need to distinguish.
  [[nodiscard]] virtual Outcome classify(int code) const noexcept = 0;

  virtual Status start() = 0;
  /// Version numbers in the vendor's encoding: HIP 50221153 is 5.2.21153, CUDA 13000 is 13.0. `runtime` is 0 if there
  /// is none.
  virtual Status versions(int* driver, int* runtime) = 0;
  virtual Status device_count(int* count) = 0;
  virtual Status describe(int ordinal, DeviceInfo* info) = 0;
  /// The device has a context between open_device and close_device.
  virtual Status open_device(int ordinal) = 0;
  virtual Status close_device(int ordinal) = 0;
  virtual Status make_current(int ordinal) = 0;

  virtual Status memory_info(std::size_t* free_bytes, std::size_t* total_bytes) = 0;
  // Memory. host_alloc returns pinned memory that the device sees at the same address.
  virtual Status mem_alloc(void** memory, std::size_t bytes) = 0;
  virtual Status mem_free(void* memory) = 0;
  virtual Status host_alloc(void** memory, std::size_t bytes) = 0;
  virtual Status host_free(void* memory) = 0;

  // Asynchronous copies and fills in the order of `stream`.
  virtual Status copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) = 0;
  virtual Status copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) = 0;
  virtual Status copy_on_device(void* to, const void* from, std::size_t bytes, void* stream) = 0;
  virtual Status fill_bytes(void* to, std::uint8_t value, std::size_t bytes, void* stream) = 0;
  virtual Status fill_words(void* to, std::uint32_t value, std::size_t words, void* stream) = 0;

  virtual Status stream_create(void** stream) = 0;
  virtual Status stream_destroy(void* stream) = 0;
  virtual Status stream_query(void* stream) = 0;
  virtual Status stream_synchronize(void* stream) = 0;
  virtual Status stream_wait(void* stream, void* event) = 0;

  virtual Status event_create(void** event, EventOptions options) = 0;
  virtual Status event_destroy(void* event) = 0;
  virtual Status event_record(void* event, void* stream) = 0;
  virtual Status event_query(void* event) = 0;
  virtual Status event_synchronize(void* event) = 0;
  virtual Status event_elapsed(float* milliseconds, void* from, void* to) = 0;

  virtual Status module_load(void** module, std::span<const std::byte> image) = 0;
  virtual Status module_unload(void* module) = 0;
  virtual Status module_function(void** function, void* module, const char* name) = 0;
  virtual Status function_facts(void* function, FunctionFacts* facts) = 0;
  /// Allows launches of `function` with up to `bytes` of dynamic LDS. Does nothing where no opt-in is needed.
  virtual Status allow_lds(void* function, std::uint32_t bytes) = 0;
  /// Blocks of `threads` threads that one compute unit can hold at once.
  virtual Status occupancy(int* blocks, void* function, int threads, std::size_t lds_bytes) = 0;
  virtual Status launch(const LaunchCall& call) = 0;

  // Stream capture: work enqueued between begin and end is recorded into a graph.
  virtual Status capture_begin(void* stream) = 0;
  /// `graph` is null if recording failed.
  virtual Status capture_end(void* stream, void** graph) = 0;
  virtual Status graph_destroy(void* graph) = 0;
  virtual Status graph_instantiate(void** exec, void* graph) = 0;
  virtual Status graph_exec_destroy(void* exec) = 0;
  virtual Status graph_upload(void* exec, void* stream) = 0;
  virtual Status graph_launch(void* exec, void* stream) = 0;
};

/// A vendor's run-time compiler (hipRTC, NVRTC). Options are the vendor's own.
class CompilerApi {
 public:
  CompilerApi() = default;
  CompilerApi(const CompilerApi&) = delete;
  CompilerApi& operator=(const CompilerApi&) = delete;
  virtual ~CompilerApi() = default;
  [[nodiscard]] virtual std::string library() const = 0;
  [[nodiscard]] virtual std::string version() = 0;
  virtual CompileResult compile(const std::string& source, const std::string& name,
                                std::span<const std::string> options) = 0;
};

class LibrarySearch;
/// The places where a vendor's driver library may be.
[[nodiscard]] LibrarySearch driver_libraries(Vendor vendor);
/// Loads the next library of the search that exists and returns its functions; null if there is none left. Throws
/// Error(kDevice) if that library lacks a required function, naming it and the package that provides it, and if this
/// build does not support the vendor.
[[nodiscard]] std::unique_ptr<Api> load_hip(LibrarySearch& search);
[[nodiscard]] std::unique_ptr<Api> load_cuda(LibrarySearch& search);
/// Loads the run-time compiler. Throws Error(kDevice) as above, and if there is no such library.
[[nodiscard]] std::unique_ptr<CompilerApi> load_hiprtc();
[[nodiscard]] std::unique_ptr<CompilerApi> load_nvrtc();
/// True if this build supports the vendor.
[[nodiscard]] bool has_column(Vendor vendor);
/// The Debian package that provides a vendor's driver library or run-time compiler.
[[nodiscard]] const char* driver_package(Vendor vendor);
[[nodiscard]] const char* compiler_package(Vendor vendor);

}  // namespace forge::driver
