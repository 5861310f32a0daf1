// The null driver's devices, memory, copies, streams and events.
#include <fmt/format.h>

#include "tests/null_driver/null_api.h"

namespace forge::driver {

Outcome NullApi::classify(int code) const noexcept {
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

Status NullApi::start() {
  return call("start", [&] { return s_.options.devices == 0 ? kNullNoDevice : kNullSuccess; });
}

Status NullApi::versions(int* driver, int* runtime) {
  return call("versions", [&] {
    *driver = *runtime = 1;
    return kNullSuccess;
  });
}

Status NullApi::device_count(int* count) {
  return call("device_count", [&] {
    *count = s_.options.devices;
    return kNullSuccess;
  });
}

Status NullApi::describe(int ordinal, DeviceInfo* info) {
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

Status NullApi::open_device(int ordinal) {
  return call("open_device", [&] {
    if (ordinal < 0 || ordinal >= s_.options.devices) return kNullInvalidDevice;
    ++s_.contexts[ordinal];
    return kNullSuccess;
  });
}

Status NullApi::close_device(int ordinal) {
  return call("close_device", [&] {
    if (s_.contexts[ordinal] == 0) return kNullInvalidContext;
    --s_.contexts[ordinal];
    return kNullSuccess;
  });
}

Status NullApi::make_current(int ordinal) {
  return call("make_current", [&] {
    if (s_.contexts[ordinal] == 0) return kNullInvalidContext;
    s_.current[std::this_thread::get_id()] = ordinal;
    return kNullSuccess;
  });
}

Status NullApi::memory_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  return call("memory_info", [&] {
    if (s_.current_device() < 0) return kNullInvalidContext;
    const std::uint64_t used = used_bytes(s_.current_device());
    *total_bytes = s_.options.memory_bytes;
    *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
    return kNullSuccess;
  });
}

/// Limited to NullOptions::memory_bytes per device.
Status NullApi::mem_alloc(void** memory, std::size_t bytes) {
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

Status NullApi::mem_free(void* memory) {
  return release("mem_free", s_.device_memory, memory);
}

Status NullApi::host_alloc(void** memory, std::size_t bytes) {
  return call("host_alloc", [&] {
    if (const int code = s_.forbidden_in_capture(); code != kNullSuccess) return NullCode(code);
    if (bytes == 0) return kNullInvalidValue;
    *memory = s_.pinned_memory.allocate(bytes, s_.current_device());
    return *memory == nullptr ? kNullOutOfMemory : kNullSuccess;
  });
}

Status NullApi::host_free(void* memory) {
  return release("host_free", s_.pinned_memory, memory);
}

Status NullApi::copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) {
  return copy("copy_to_device", to, s_.device_memory, from, s_.pinned_memory, bytes, stream);
}

Status NullApi::copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) {
  return copy("copy_to_host", to, s_.pinned_memory, from, s_.device_memory, bytes, stream);
}

Status NullApi::copy_on_device(void* to, const void* from, std::size_t bytes, void* stream) {
  return copy("copy_on_device", to, s_.device_memory, from, s_.device_memory, bytes, stream);
}

/// Ranges are checked twice: when the work is enqueued and again when it runs, because memory may be freed in between.
Status NullApi::fill_bytes(void* to, std::uint8_t value, std::size_t bytes, void* stream) {
  return on_stream("fill_bytes", stream, [&](const auto& on) {
    if (!s_.device_memory.holds(to, bytes)) return int{kNullInvalidValue};
    return s_.enqueue(on, [this, to, value, bytes] {
      if (!s_.device_memory.holds(to, bytes)) return kNullIllegalAddress;
      std::memset(to, value, bytes);
      return kNullSuccess;
    });
  });
}

Status NullApi::fill_words(void* to, std::uint32_t value, std::size_t words, void* stream) {
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

Status NullApi::stream_create(void** stream) {
  return call("stream_create", [&] { return create(s_.streams, stream); });
}

Status NullApi::stream_destroy(void* stream) {
  return on_stream("stream_destroy", stream, [&](const auto& on) {
    if (on->capture != nullptr) return int{kNullCaptureUnsupported};
    s_.drain(*on);
    s_.streams.erase(stream);
    return int{kNullSuccess};
  });
}

/// A query advances deferred work by one operation, so that polling loops end.
Status NullApi::stream_query(void* stream) {
  return on_stream("stream_query", stream, [&](const auto& on) {
    if (on->capture != nullptr) return invalidate(*on->capture);
    if (on->pending.empty()) return int{kNullSuccess};
    s_.step(*on);
    return s_.lost != kNullSuccess ? s_.lost : int{kNullNotReady};
  });
}

Status NullApi::stream_synchronize(void* stream) {
  return on_stream("stream_synchronize", stream, [&](const auto& on) {
    if (on->capture != nullptr) return invalidate(*on->capture);
    s_.drain(*on);
    return s_.lost;
  });
}

Status NullApi::stream_wait(void* stream, void* event) {
  return on_stream("stream_wait", stream, [&](const auto& on) {
    const auto of = find(s_.events, event);
    return of == nullptr ? int{kNullInvalidHandle} : s_.wait(on, of);
  });
}

Status NullApi::event_create(void** event, EventOptions options) {
  return call("event_create", [&] {
    const auto code = create(s_.events, event);
    if (code == kNullSuccess) s_.events[*event]->timing = options.timing;
    return code;
  });
}

Status NullApi::event_destroy(void* event) {
  return call("event_destroy", [&] { return s_.events.erase(event) == 0 ? kNullInvalidHandle : kNullSuccess; });
}

Status NullApi::event_record(void* event, void* stream) {
  return on_stream("event_record", stream, [&](const auto& on) {
    const auto of = find(s_.events, event);
    if (of == nullptr || of->device != on->device) return int{kNullInvalidHandle};
    return s_.record(*of, of, on);
  });
}

/// Advances deferred work by one operation, as stream_query does.
Status NullApi::event_query(void* event) {
  return on_event("event_query", event, [&](NullEvent& of) {
    if (of.done >= of.recorded) return int{kNullSuccess};
    s_.step(*of.stream);
    return s_.lost != kNullSuccess ? s_.lost : int{kNullNotReady};
  });
}

/// Runs only what the event waits for; later work stays pending.
Status NullApi::event_synchronize(void* event) {
  return on_event("event_synchronize", event, [&](NullEvent& of) {
    while (of.done < of.recorded && !of.stream->pending.empty()) s_.step(*of.stream);
    return s_.lost;
  });
}

Status NullApi::event_elapsed(float* milliseconds, void* from, void* to) {
  return call("event_elapsed", [&] {
    const auto first = find(s_.events, from), last = find(s_.events, to);
    if (first == nullptr || last == nullptr || !first->timing || !last->timing) return kNullInvalidHandle;
    if (first->recorded == 0 || last->recorded == 0) return kNullInvalidHandle;
    if (first->done < first->recorded || last->done < last->recorded) return kNullNotReady;
    *milliseconds = (static_cast<float>(last->done_at_us) - static_cast<float>(first->done_at_us)) * 1e-3F;
    return kNullSuccess;
  });
}

/// Real drivers finish pending work before they free memory.
Status NullApi::release(const char* function, NullMemory& from, void* memory) {
  return call(function, [&]() -> int {
    if (const int code = s_.forbidden_in_capture(); code != kNullSuccess) return code;
    s_.drain_all();
    return from.free(memory) ? kNullSuccess : kNullInvalidValue;
  });
}

/// Both ranges must be inside live blocks of the right kind: pinned host memory or device memory.
Status NullApi::copy(const char* function, void* to, const NullMemory& to_memory, const void* from,
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

std::uint64_t NullApi::used_bytes(int device) const {
  std::uint64_t bytes = 0;
  for (const auto& [address, block] : s_.device_memory.blocks) bytes += block.device == device ? block.bytes : 0;
  return bytes;
}

Driver open_null(std::shared_ptr<NullControl> control) {
  return Driver::start(std::make_unique<NullApi>(std::move(control)));
}

}  // namespace forge::driver
