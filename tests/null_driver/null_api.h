#pragma once
// The null driver's implementation of Api on NullState. It validates more than real drivers do. null_column.cc has
// devices, memory, streams and events; null_kernels.cc has modules, launches and graphs. Private to
// tests/null_driver.

#include "tests/null_driver/null_state.h"

namespace forge::driver {

/// The object of a handle; null if it is not alive.
template <typename T>
[[nodiscard]] std::shared_ptr<T> find(const std::map<void*, std::shared_ptr<T>>& objects, void* handle) {
  const auto found = objects.find(handle);
  return found == objects.end() ? nullptr : found->second;
}

class NullApi final : public Api {
 public:
  explicit NullApi(std::shared_ptr<NullControl> control) : control_(std::move(control)), s_(control_->state()) {}

  Vendor vendor() const noexcept override { return Vendor::kNull; }
  std::string library() const override { return "in process"; }
  const char* code_name(int code) const noexcept override { return null_code(code).name; }
  const char* code_text(int code) const noexcept override { return null_code(code).text; }
  Outcome classify(int code) const noexcept override;

  Status start() override;
  Status versions(int* driver, int* runtime) override;
  Status device_count(int* count) override;
  Status describe(int ordinal, DeviceInfo* info) override;
  Status open_device(int ordinal) override;
  Status close_device(int ordinal) override;
  Status make_current(int ordinal) override;

  Status memory_info(std::size_t* free_bytes, std::size_t* total_bytes) override;
  Status mem_alloc(void** memory, std::size_t bytes) override;
  Status mem_free(void* memory) override;
  Status host_alloc(void** memory, std::size_t bytes) override;
  Status host_free(void* memory) override;

  Status copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) override;
  Status copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) override;
  Status copy_on_device(void* to, const void* from, std::size_t bytes, void* stream) override;
  Status fill_bytes(void* to, std::uint8_t value, std::size_t bytes, void* stream) override;
  Status fill_words(void* to, std::uint32_t value, std::size_t words, void* stream) override;

  Status stream_create(void** stream) override;
  Status stream_destroy(void* stream) override;
  Status stream_query(void* stream) override;
  Status stream_synchronize(void* stream) override;
  Status stream_wait(void* stream, void* event) override;

  Status event_create(void** event, EventOptions options) override;
  Status event_destroy(void* event) override;
  Status event_record(void* event, void* stream) override;
  Status event_query(void* event) override;
  Status event_synchronize(void* event) override;
  Status event_elapsed(float* milliseconds, void* from, void* to) override;

  Status module_load(void** module, std::span<const std::byte> image) override;
  Status module_unload(void* module) override;
  Status module_function(void** function, void* module, const char* name) override;
  Status function_facts(void* function, FunctionFacts* facts) override;
  Status allow_lds(void* function, std::uint32_t bytes) override;
  Status occupancy(int* blocks, void* function, int threads, std::size_t lds_bytes) override;
  Status launch(const LaunchCall& c) override;

  Status capture_begin(void* stream) override;
  Status capture_end(void* stream, void** graph) override;
  Status graph_destroy(void* graph) override;
  Status graph_instantiate(void** exec, void* graph) override;
  Status graph_exec_destroy(void* exec) override;
  Status graph_upload(void* exec, void* stream) override;
  Status graph_launch(void* exec, void* stream) override;

 private:
  /// Wraps every call: counts it, returns an injected failure if the test wants one, otherwise runs `body` under the
  /// mutex.
  template <typename Body>
  Status call(const char* function, Body&& body) {
    const std::scoped_lock lock(s_.mutex);
    int code = s_.enter(function);
    if (code == kNullSuccess) code = body();
    return {this, function, code};
  }
  /// The same for calls on a stream, which must be alive and on the current device.
  template <typename Body>
  Status on_stream(const char* function, void* stream, Body&& body) {
    return call(function, [&]() -> int {
      const auto on = find(s_.streams, stream);
      if (on == nullptr) return kNullInvalidHandle;
      if (on->device != s_.current_device()) return kNullInvalidContext;
      return body(on);
    });
  }
  /// The same for calls on an event that is not part of a recording.
  template <typename Body>
  Status on_event(const char* function, void* event, Body&& body) {
    return call(function, [&]() -> int {
      const auto of = find(s_.events, event);
      if (of == nullptr) return kNullInvalidHandle;
      return of->capture != nullptr ? kNullCapturedEvent : body(*of);
    });
  }
  /// The same for calls on a kernel.
  template <typename Body>
  Status on_function(const char* function, void* handle, Body&& body) {
    return call(function, [&]() -> int {
      const auto of = s_.functions.find(handle);
      return of == s_.functions.end() ? kNullInvalidHandle : body(*of->second);
    });
  }
  /// Creates an object of the current device and registers its handle.
  template <typename T>
  NullCode create(std::map<void*, std::shared_ptr<T>>& objects, void** handle) {
    if (s_.current_device() < 0) return kNullInvalidContext;
    auto object = std::make_shared<T>();
    object->device = s_.current_device();
    *handle = object.get();
    objects.emplace(*handle, std::move(object));
    return kNullSuccess;
  }
  /// Invalidates a recording, as real drivers do after a forbidden call.
  static int invalidate(NullCapture& capture) {
    capture.failed = true;
    return kNullCaptureUnsupported;
  }
  Status release(const char* function, NullMemory& from, void* memory);
  Status copy(const char* function, void* to, const NullMemory& to_memory, const void* from,
              const NullMemory& from_memory, std::size_t bytes, void* stream);
  [[nodiscard]] std::uint64_t used_bytes(int device) const;

  std::shared_ptr<NullControl> control_;
  NullState& s_;
};

}  // namespace forge::driver
