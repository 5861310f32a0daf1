// The null driver's column: Api on NullState. It checks what a real driver may let pass.
#include <fmt/format.h>

#include "runtime/driver/null_state.h"

namespace forge::driver {

namespace {

template <typename T>
std::shared_ptr<T> find(const std::map<void*, std::shared_ptr<T>>& objects, void* handle) {
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
  Outcome classify(int code) const noexcept override {
    switch (code) {
      case kNullSuccess:
        return Outcome::kOk;
      case kNullNotReady:
        return Outcome::kNotReady;
      case kNullOutOfMemory:
        return Outcome::kOutOfMemory;
      case kNullNoDevice:
      case kNullInvalidDevice:
        return Outcome::kNoDevice;
      case kNullIllegalAddress:
      case kNullLaunchFailed:
        return Outcome::kLost;
      default:
        return Outcome::kFailed;
    }
  }

  Status start() override {
    return call("start", [&] { return s_.options.devices == 0 ? kNullNoDevice : kNullSuccess; });
  }
  Status versions(int* driver, int* runtime) override {
    return call("versions", [&] {
      *driver = *runtime = 1;
      return kNullSuccess;
    });
  }
  Status device_count(int* count) override {
    return call("device_count", [&] {
      *count = s_.options.devices;
      return kNullSuccess;
    });
  }
  Status describe(int ordinal, DeviceInfo* info) override {
    return call("describe", [&] {
      if (ordinal < 0 || ordinal >= s_.options.devices) return kNullInvalidDevice;
      info->name = fmt::format("null device {}", ordinal);
      info->arch = s_.options.arch;
      info->pci = fmt::format("0000:00:{:02x}.0", ordinal);
      info->wave_size = s_.options.wave_size;
      info->memory_bytes = s_.options.memory_bytes;
      info->units = 4;
      info->lds_bytes_per_block = info->lds_bytes_per_unit = s_.options.lds_bytes;
      info->threads_per_block_max = 1024;
      info->threads_per_unit_max = 2048;
      info->block_max = {1024, 1024, 1024};
      info->grid_max = {0x7fffffff, 65535, 65535};
      info->clock_khz = 1'000'000;
      info->l2_bytes = 1 << 20;
      info->integrated = true;
      return kNullSuccess;
    });
  }
  Status open_device(int ordinal) override {
    return call("open_device", [&] {
      if (ordinal < 0 || ordinal >= s_.options.devices) return kNullInvalidDevice;
      ++s_.contexts[ordinal];
      return kNullSuccess;
    });
  }
  Status close_device(int ordinal) override {
    return call("close_device", [&] {
      if (s_.contexts[ordinal] == 0) return kNullInvalidContext;
      --s_.contexts[ordinal];
      return kNullSuccess;
    });
  }
  Status make_current(int ordinal) override {
    return call("make_current", [&] {
      if (s_.contexts[ordinal] == 0) return kNullInvalidContext;
      s_.current[std::this_thread::get_id()] = ordinal;
      return kNullSuccess;
    });
  }

  Status memory_info(std::size_t* free_bytes, std::size_t* total_bytes) override {
    return call("memory_info", [&] {
      if (s_.current_device() < 0) return kNullInvalidContext;
      const std::uint64_t used = used_bytes(s_.current_device());
      *total_bytes = s_.options.memory_bytes;
      *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
      return kNullSuccess;
    });
  }
  Status mem_alloc(void** memory, std::size_t bytes) override {
    return call("mem_alloc", [&] {
      const int device = s_.current_device();
      if (device < 0) return kNullInvalidContext;
      if (const int code = s_.forbidden_in_capture(); code != kNullSuccess) return NullCode(code);
      if (bytes == 0) return kNullInvalidValue;
      const std::uint64_t used = used_bytes(device);
      if (used > s_.options.memory_bytes || bytes > s_.options.memory_bytes - used) return kNullOutOfMemory;
      *memory = s_.device_memory.allocate(bytes, device);
      return *memory == nullptr ? kNullOutOfMemory : kNullSuccess;
    });
  }
  Status mem_free(void* memory) override { return release("mem_free", s_.device_memory, memory); }
  Status host_alloc(void** memory, std::size_t bytes) override {
    return call("host_alloc", [&] {
      if (const int code = s_.forbidden_in_capture(); code != kNullSuccess) return NullCode(code);
      if (bytes == 0) return kNullInvalidValue;
      *memory = s_.pinned_memory.allocate(bytes, s_.current_device());
      return *memory == nullptr ? kNullOutOfMemory : kNullSuccess;
    });
  }
  Status host_free(void* memory) override { return release("host_free", s_.pinned_memory, memory); }

  Status copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) override {
    return copy("copy_to_device", to, s_.device_memory, from, s_.pinned_memory, bytes, stream);
  }
  Status copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) override {
    return copy("copy_to_host", to, s_.pinned_memory, from, s_.device_memory, bytes, stream);
  }
  Status copy_on_device(void* to, const void* from, std::size_t bytes, void* stream) override {
    return copy("copy_on_device", to, s_.device_memory, from, s_.device_memory, bytes, stream);
  }
  Status fill_bytes(void* to, std::uint8_t value, std::size_t bytes, void* stream) override {
    return on_stream("fill_bytes", stream, [&](const auto& on) {
      if (!s_.device_memory.holds(to, bytes)) return int{kNullInvalidValue};
      return s_.enqueue(on, [this, to, value, bytes] {
        if (!s_.device_memory.holds(to, bytes)) return kNullIllegalAddress;
        std::memset(to, value, bytes);
        return kNullSuccess;
      });
    });
  }
  Status fill_words(void* to, std::uint32_t value, std::size_t words, void* stream) override {
    return on_stream("fill_words", stream, [&](const auto& on) {
      if (reinterpret_cast<std::uintptr_t>(to) % 4 != 0 || !s_.device_memory.holds(to, words * 4)) {
        return int{kNullInvalidValue};
      }
      return s_.enqueue(on, [this, to, value, words] {
        if (!s_.device_memory.holds(to, words * 4)) return kNullIllegalAddress;
        std::fill_n(static_cast<std::uint32_t*>(to), words, value);
        return kNullSuccess;
      });
    });
  }

  Status stream_create(void** stream) override {
    return call("stream_create", [&] { return create(s_.streams, stream); });
  }
  Status stream_destroy(void* stream) override {
    return on_stream("stream_destroy", stream, [&](const auto& on) {
      if (on->capture != nullptr) return int{kNullCaptureUnsupported};
      s_.drain(*on);
      s_.streams.erase(stream);
      return int{kNullSuccess};
    });
  }
  Status stream_query(void* stream) override {
    return on_stream("stream_query", stream, [&](const auto& on) {
      if (on->capture != nullptr) return spoil(*on->capture);
      if (on->pending.empty()) return int{kNullSuccess};
      s_.step(*on);
      return s_.lost != kNullSuccess ? s_.lost : int{kNullNotReady};
    });
  }
  Status stream_synchronize(void* stream) override {
    return on_stream("stream_synchronize", stream, [&](const auto& on) {
      if (on->capture != nullptr) return spoil(*on->capture);
      s_.drain(*on);
      return s_.lost;
    });
  }
  Status stream_wait(void* stream, void* event) override {
    return on_stream("stream_wait", stream, [&](const auto& on) {
      const auto of = find(s_.events, event);
      return of == nullptr ? int{kNullInvalidHandle} : s_.wait(on, of);
    });
  }

  Status event_create(void** event, EventOptions options) override {
    return call("event_create", [&] {
      const auto code = create(s_.events, event);
      if (code == kNullSuccess) s_.events[*event]->timing = options.timing;
      return code;
    });
  }
  Status event_destroy(void* event) override {
    return call("event_destroy", [&] { return s_.events.erase(event) == 0 ? kNullInvalidHandle : kNullSuccess; });
  }
  Status event_record(void* event, void* stream) override {
    return on_stream("event_record", stream, [&](const auto& on) {
      const auto of = find(s_.events, event);
      if (of == nullptr || of->device != on->device) return int{kNullInvalidHandle};
      return s_.record(*of, of, on);
    });
  }
  Status event_query(void* event) override {
    return on_event("event_query", event, [&](NullEvent& of) {
      if (of.done >= of.recorded) return int{kNullSuccess};
      s_.step(*of.stream);
      return s_.lost != kNullSuccess ? s_.lost : int{kNullNotReady};
    });
  }
  Status event_synchronize(void* event) override {
    return on_event("event_synchronize", event, [&](NullEvent& of) {
      while (of.done < of.recorded && !of.stream->pending.empty()) s_.step(*of.stream);
      return s_.lost;
    });
  }
  Status event_elapsed(float* milliseconds, void* from, void* to) override {
    return call("event_elapsed", [&] {
      const auto first = find(s_.events, from), last = find(s_.events, to);
      if (first == nullptr || last == nullptr || !first->timing || !last->timing) return kNullInvalidHandle;
      if (first->recorded == 0 || last->recorded == 0) return kNullInvalidHandle;
      if (first->done < first->recorded || last->done < last->recorded) return kNullNotReady;
      *milliseconds = (static_cast<float>(last->done_at_us) - static_cast<float>(first->done_at_us)) * 1e-3F;
      return kNullSuccess;
    });
  }

  Status module_load(void** module, std::span<const std::byte> image) override;
  Status module_unload(void* module) override;
  Status module_function(void** function, void* module, const char* name) override;
  Status function_facts(void* function, FunctionFacts* facts) override {
    return on_function("function_facts", function, [&](const NullFunction& of) {
      *facts = of.image.facts;
      return kNullSuccess;
    });
  }
  Status allow_lds(void* function, std::uint32_t bytes) override {
    return on_function("allow_lds", function, [&](const NullFunction&) {
      return bytes <= s_.options.lds_bytes ? kNullSuccess : kNullInvalidValue;
    });
  }
  Status occupancy(int* blocks, void* function, int threads, std::size_t lds_bytes) override {
    return on_function("occupancy", function, [&](const NullFunction& of) {
      if (threads <= 0) return kNullInvalidValue;
      const std::size_t lds = lds_bytes + static_cast<std::size_t>(std::max(of.image.facts.lds_bytes, 0));
      *blocks = threads > of.image.facts.threads_per_block_max ? 0 : 2048 / threads;
      if (lds > 0) *blocks = std::min(*blocks, static_cast<int>(s_.options.lds_bytes / lds));
      return kNullSuccess;
    });
  }
  Status launch(const LaunchCall& c) override;

  Status capture_begin(void* stream) override {
    return on_stream("capture_begin", stream, [&](const auto& on) { return s_.begin_capture(on); });
  }
  Status capture_end(void* stream, void** graph) override {
    *graph = nullptr;
    return on_stream("capture_end", stream, [&](const auto& on) {
      std::shared_ptr<NullGraph> made;
      const int code = s_.end_capture(on, &made);
      if (code == kNullSuccess) {
        *graph = made.get();
        s_.graphs[*graph] = made;
      }
      return code;
    });
  }
  Status graph_destroy(void* graph) override {
    return call("graph_destroy", [&] { return s_.graphs.erase(graph) == 0 ? kNullInvalidHandle : kNullSuccess; });
  }
  Status graph_instantiate(void** exec, void* graph) override {
    return call("graph_instantiate", [&] {
      const auto of = find(s_.graphs, graph);
      if (of == nullptr) return kNullInvalidHandle;
      const auto made = std::make_shared<NullGraph>(*of);
      *exec = made.get();
      s_.graph_execs[*exec] = made;
      return kNullSuccess;
    });
  }
  Status graph_exec_destroy(void* exec) override {
    return call("graph_exec_destroy",
                [&] { return s_.graph_execs.erase(exec) == 0 ? kNullInvalidHandle : kNullSuccess; });
  }
  Status graph_upload(void* exec, void* stream) override {
    return on_stream("graph_upload", stream, [&](const auto&) {
      return int{find(s_.graph_execs, exec) == nullptr ? kNullInvalidHandle : kNullSuccess};
    });
  }
  Status graph_launch(void* exec, void* stream) override {
    return on_stream("graph_launch", stream, [&](const auto& on) {
      const auto graph = find(s_.graph_execs, exec);
      if (graph == nullptr) return int{kNullInvalidHandle};
      return s_.enqueue(on, [this, graph] {
        for (const NullOp& op : graph->ops) {
          if (const int code = s_.run(op); code != kNullSuccess) return code;
        }
        return int{kNullSuccess};
      });
    });
  }

 private:
  /// Every call: counted, failed where the test wants it, else `body`.
  template <typename Body>
  Status call(const char* function, Body&& body) {
    const std::scoped_lock lock(s_.mutex);
    int code = s_.enter(function);
    if (code == kNullSuccess) code = body();
    return {this, function, code};
  }
  template <typename Body>
  Status on_stream(const char* function, void* stream, Body&& body) {
    return call(function, [&]() -> int {
      const auto on = find(s_.streams, stream);
      if (on == nullptr) return kNullInvalidHandle;
      if (on->device != s_.current_device()) return kNullInvalidContext;
      return body(on);
    });
  }
  template <typename Body>
  Status on_event(const char* function, void* event, Body&& body) {
    return call(function, [&]() -> int {
      const auto of = find(s_.events, event);
      if (of == nullptr) return kNullInvalidHandle;
      return of->capture != nullptr ? kNullCapturedEvent : body(*of);
    });
  }
  template <typename Body>
  Status on_function(const char* function, void* handle, Body&& body) {
    return call(function, [&]() -> int {
      const auto of = s_.functions.find(handle);
      return of == s_.functions.end() ? kNullInvalidHandle : body(*of->second);
    });
  }
  template <typename T>
  NullCode create(std::map<void*, std::shared_ptr<T>>& objects, void** handle) {
    if (s_.current_device() < 0) return kNullInvalidContext;
    auto object = std::make_shared<T>();
    object->device = s_.current_device();
    *handle = object.get();
    objects.emplace(*handle, std::move(object));
    return kNullSuccess;
  }
  static int spoil(NullCapture& capture) {
    capture.failed = true;
    return kNullCaptureUnsupported;
  }
  Status release(const char* function, NullMemory& from, void* memory) {
    return call(function, [&]() -> int {
      if (const int code = s_.forbidden_in_capture(); code != kNullSuccess) return code;
      s_.drain_all();
      return from.free(memory) ? kNullSuccess : kNullInvalidValue;
    });
  }
  Status copy(const char* function, void* to, const NullMemory& to_memory, const void* from,
              const NullMemory& from_memory, std::size_t bytes, void* stream) {
    return on_stream(function, stream, [&](const auto& on) {
      if (!to_memory.holds(to, bytes) || !from_memory.holds(from, bytes)) return int{kNullInvalidValue};
      return s_.enqueue(on, [to, from, bytes, &to_memory, &from_memory] {
        if (!to_memory.holds(to, bytes) || !from_memory.holds(from, bytes)) return kNullIllegalAddress;
        std::memcpy(to, from, bytes);
        return kNullSuccess;
      });
    });
  }
  std::uint64_t used_bytes(int device) const {
    std::uint64_t bytes = 0;
    for (const auto& [address, block] : s_.device_memory.blocks) bytes += block.device == device ? block.bytes : 0;
    return bytes;
  }

  std::shared_ptr<NullControl> control_;
  NullState& s_;
};

Status NullApi::module_load(void** module, std::span<const std::byte> image) {
  return call("module_load", [&] {
    std::vector<NullKernelImage> kernels;
    if (!parse_null_image(image, &kernels)) return kNullInvalidImage;
    if (const NullCode code = create(s_.modules, module); code != kNullSuccess) return code;
    NullModule& made = *s_.modules[*module];
    for (NullKernelImage& kernel : kernels) {
      made.functions.push_back(std::make_unique<NullFunction>(made.device, std::move(kernel)));
      s_.functions[made.functions.back().get()] = made.functions.back().get();
    }
    return kNullSuccess;
  });
}

Status NullApi::module_unload(void* module) {
  return call("module_unload", [&] {
    const auto of = find(s_.modules, module);
    if (of == nullptr) return kNullInvalidHandle;
    s_.drain_all();
    for (const auto& function : of->functions) s_.functions.erase(function.get());
    s_.modules.erase(module);
    return kNullSuccess;
  });
}

Status NullApi::module_function(void** function, void* module, const char* name) {
  return call("module_function", [&] {
    const auto of = find(s_.modules, module);
    if (of == nullptr) return kNullInvalidHandle;
    for (const auto& candidate : of->functions) {
      if (candidate->image.name != name) continue;
      *function = candidate.get();
      return kNullSuccess;
    }
    return kNullNotFound;
  });
}

Status NullApi::launch(const LaunchCall& c) {
  return on_stream("launch", c.stream, [&](const auto& on) -> int {
    const auto found = s_.functions.find(c.function);
    if (found == s_.functions.end() || found->second->device != on->device) return kNullInvalidHandle;
    const NullKernelImage& image = found->second->image;
    const std::uint64_t threads = std::uint64_t{c.block.x} * c.block.y * c.block.z;
    if (threads > static_cast<std::uint64_t>(image.facts.threads_per_block_max)) return kNullOutOfResources;
    if (c.lds_bytes + static_cast<std::uint64_t>(image.facts.lds_bytes) > s_.options.lds_bytes) {
      return kNullOutOfResources;
    }
    if (!image.arg_bytes.empty() && c.args == nullptr) return kNullInvalidValue;
    NullLaunch launch{image.name, c.grid, c.block, c.lds_bytes, c.hints, {}};
    for (std::size_t i = 0; i < image.arg_bytes.size(); ++i) {
      if (c.args[i] == nullptr) return kNullInvalidValue;
      const auto* value = static_cast<const std::byte*>(c.args[i]);
      launch.args.emplace_back(value, value + image.arg_bytes[i]);
    }
    return s_.enqueue(on, [this, launch = std::move(launch)] {
      const auto kernel = s_.kernels.find(launch.kernel);
      if (kernel != s_.kernels.end()) kernel->second(launch);
      return kNullSuccess;
    });
  });
}

}  // namespace

std::unique_ptr<Api> make_null_api(std::shared_ptr<NullControl> control) {
  return std::make_unique<NullApi>(std::move(control));
}

}  // namespace forge::driver
