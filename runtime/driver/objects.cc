// Implementation of driver.h's objects over the Api of any vendor.
#include <fmt/format.h>

#include "runtime/driver/state.h"

namespace forge::driver {

namespace {

/// E.g. "1.50 GiB (1610612736 bytes)".
std::string size_text(std::uint64_t bytes) {
  return fmt::format("{:.2f} GiB ({} bytes)", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0), bytes);
}

/// The error of a failed allocation, with requested, free and total bytes.
Error allocation_error(const DeviceState& device, const Status& status, std::size_t bytes, std::string_view what,
                       std::string_view kind) {
  std::size_t free_bytes = 0, total_bytes = 0;
  const Status asked = device.api().memory_info(&free_bytes, &total_bytes);
  std::string doing = fmt::format("allocating {} of {} memory for {} on {}", size_text(bytes), kind, what,
                                  printable(device.info().name));
  if (asked.ok()) doing += fmt::format(", where {} of {} are free", size_text(free_bytes), size_text(total_bytes));
  return status.error(doing);
}

/// True if [offset, offset + bytes) lies in [0, size); written so that nothing overflows.
bool inside(std::size_t offset, std::size_t bytes, std::size_t size) {
  return offset <= size && bytes <= size - offset;
}

/// The counter for this kind of memory; null if the kind is not memory.
AllocationCounter* counter_of(const DeviceState& device, HandleKind kind) {
  if (kind == HandleKind::kDeviceMemory) return &device.driver->device_memory;
  return kind == HandleKind::kPinnedMemory ? &device.driver->pinned_memory : nullptr;
}

void* at(void* memory, std::size_t offset) {
  return static_cast<std::byte*>(memory) + offset;
}

}  // namespace

Handle::Handle(HandleKind kind, const Device& device, std::size_t bytes, std::string_view what)
    : device_(device.state()), kind_(kind) {
  if (bytes == 0) return;
  const bool pinned = kind == HandleKind::kPinnedMemory;
  void* memory = nullptr;
  const Status status =
      device_->with([&](Api& api) { return pinned ? api.host_alloc(&memory, bytes) : api.mem_alloc(&memory, bytes); });
  if (!status.ok()) throw allocation_error(*device_, status, bytes, what, pinned ? "pinned host" : "device");
  handle_ = memory;
  bytes_ = bytes;
  counter_of(*device_, kind)->add(bytes);
}

/// Releases what this handle owned before it takes over the other.
Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    release();
    device_ = std::move(other.device_);
    handle_ = std::exchange(other.handle_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    kind_ = other.kind_;
  }
  return *this;
}

/// Calls the function that matches the kind. Failures are counted, because destructors call this.
void Handle::release() noexcept {
  if (handle_ == nullptr) return;
  device_->driver->released(device_->with([&](Api& api) {
    switch (kind_) {
      case HandleKind::kDeviceMemory:
        return api.mem_free(handle_);
      case HandleKind::kPinnedMemory:
        return api.host_free(handle_);
      case HandleKind::kStream:
        return api.stream_destroy(handle_);
      case HandleKind::kEvent:
        return api.event_destroy(handle_);
      case HandleKind::kModule:
        return api.module_unload(handle_);
      case HandleKind::kGraphExec:
        break;
    }
    return api.graph_exec_destroy(handle_);
  }));
  if (auto* counter = counter_of(*device_, kind_)) counter->remove(bytes_);
  handle_ = nullptr;
}

Event::Event(const Device& device, EventOptions options) : handle_(HandleKind::kEvent, device.state()) {
  device.state()->with([&](Api& api) { return api.event_create(handle_.out(), options); }).check("creating an event");
}

Status Event::record(const Stream& stream) {
  return handle_.device()->with([&](Api& api) { return api.event_record(handle_.get(), stream.handle_.get()); });
}

Status Event::query() const {
  return handle_.device()->with([&](Api& api) { return api.event_query(handle_.get()); });
}

Status Event::synchronize() const {
  return handle_.device()->with([&](Api& api) { return api.event_synchronize(handle_.get()); });
}

Status Event::elapsed(const Event& from, const Event& to, float* milliseconds) {
  return to.handle_.device()->with(
      [&](Api& api) { return api.event_elapsed(milliseconds, from.handle_.get(), to.handle_.get()); });
}

Module::Module(const Device& device, std::span<const std::byte> image, std::string_view what)
    : handle_(HandleKind::kModule, device.state()), what_(what) {
  if (image.empty()) throw Error(ErrorCode::kDevice, fmt::format("the code object of {} is empty", what));
  device.state()
      ->with([&](Api& api) { return api.module_load(handle_.out(), image); })
      .check(fmt::format("loading the {} bytes of code of {} for {}", image.size(), what, device.info().arch));
}

Function Module::function(const std::string& name) const {
  Function function;
  function.device_ = handle_.device();
  function.name_ = name;
  handle_.device()
      ->with([&](Api& api) { return api.module_function(&function.function_, handle_.get(), name.c_str()); })
      .check(fmt::format("finding kernel {} in {}", name, what_));
  return function;
}

FunctionFacts Function::facts() const {
  FunctionFacts facts;
  device_->with([&](Api& api) { return api.function_facts(function_, &facts); })
      .check("querying the facts of kernel " + name_);
  return facts;
}

void Function::allow_lds(std::uint32_t bytes) const {
  if (bytes > device_->info().lds_bytes_per_block) {
    throw Error(ErrorCode::kDevice, fmt::format("kernel {} needs {} bytes of LDS per block", name_, bytes),
                fmt::format("{} has {}", device_->info().target, device_->info().lds_bytes_per_block));
  }
  device_->with([&](Api& api) { return api.allow_lds(function_, bytes); })
      .check(fmt::format("allowing kernel {} {} bytes of LDS", name_, bytes));
}

int Function::occupancy(int threads, std::size_t lds_bytes) const {
  int blocks = 0;
  device_->with([&](Api& api) { return api.occupancy(&blocks, function_, threads, lds_bytes); })
      .check("querying the occupancy of kernel " + name_);
  return blocks;
}

Stream::Stream(const Device& device) : handle_(HandleKind::kStream, device.state()) {
  device.state()->with([&](Api& api) { return api.stream_create(handle_.out()); }).check("creating a stream");
}

Device Stream::device() const {
  return Device(handle_.device());
}

Status Stream::upload(const Buffer& to, std::size_t to_offset, const PinnedBuffer& from, std::size_t from_offset,
                      std::size_t bytes) const {
  if (!inside(to_offset, bytes, to.bytes()) || !inside(from_offset, bytes, from.bytes())) {
    return Status::refused("upload", "the range is not inside the buffers");
  }
  if (bytes == 0) return {};
  return handle_.device()->with([&](Api& api) {
    return api.copy_to_device(at(to.memory_.get(), to_offset), from.data() + from_offset, bytes, handle_.get());
  });
}

Status Stream::download(const PinnedBuffer& to, std::size_t to_offset, const Buffer& from, std::size_t from_offset,
                        std::size_t bytes) const {
  if (!inside(to_offset, bytes, to.bytes()) || !inside(from_offset, bytes, from.bytes())) {
    return Status::refused("download", "the range is not inside the buffers");
  }
  if (bytes == 0) return {};
  return handle_.device()->with([&](Api& api) {
    return api.copy_to_host(to.data() + to_offset, at(from.memory_.get(), from_offset), bytes, handle_.get());
  });
}

Status Stream::copy(const Buffer& to, std::size_t to_offset, const Buffer& from, std::size_t from_offset,
                    std::size_t bytes) const {
  if (!inside(to_offset, bytes, to.bytes()) || !inside(from_offset, bytes, from.bytes())) {
    return Status::refused("copy", "the range is not inside the buffers");
  }
  const bool overlap =
      to.memory_.get() == from.memory_.get() && to_offset < from_offset + bytes && from_offset < to_offset + bytes;
  if (bytes != 0 && overlap) return Status::refused("copy", "the ranges overlap");
  if (bytes == 0) return {};
  return handle_.device()->with([&](Api& api) {
    return api.copy_on_device(at(to.memory_.get(), to_offset), at(from.memory_.get(), from_offset), bytes,
                              handle_.get());
  });
}

Status Stream::fill(const Buffer& to, std::size_t offset, std::uint8_t value, std::size_t bytes) const {
  if (!inside(offset, bytes, to.bytes())) return Status::refused("fill", "the range is not inside the buffer");
  if (bytes == 0) return {};
  return handle_.device()->with(
      [&](Api& api) { return api.fill_bytes(at(to.memory_.get(), offset), value, bytes, handle_.get()); });
}

Status Stream::fill_words(const Buffer& to, std::size_t offset, std::uint32_t value, std::size_t words) const {
  if (words > to.bytes() / 4 || !inside(offset, words * 4, to.bytes())) {
    return Status::refused("fill_words", "the range is not inside the buffer");
  }
  if (offset % 4 != 0) return Status::refused("fill_words", "the offset is not a multiple of 4");
  if (words == 0) return {};
  return handle_.device()->with(
      [&](Api& api) { return api.fill_words(at(to.memory_.get(), offset), value, words, handle_.get()); });
}

Status Stream::wait(const Event& event) const {
  return handle_.device()->with([&](Api& api) { return api.stream_wait(handle_.get(), event.handle_.get()); });
}

Status Stream::launch_args(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes,
                           std::span<void* const> args, LaunchHints hints) const {
  return launch_checked(function, grid, block, lds_bytes, const_cast<void**>(args.data()), 0, hints);
}

Status Stream::launch_block(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes,
                            std::span<const std::byte> args, LaunchHints hints) const {
  if (args.empty() || args.size() > kArgumentBytesMax) {
    return Status::refused("launch", "the argument struct is empty or larger than 4096 bytes");
  }
  void* only = const_cast<std::byte*>(args.data());
  return launch_checked(function, grid, block, lds_bytes, &only, args.size(), hints);
}

/// Checks a launch against the device's limits and returns kRefused with a reason, so that no invalid launch reaches a
/// driver.
Status Stream::launch_checked(const Function& function, Dim3 grid, Dim3 block, std::uint32_t lds_bytes, void** args,
                              std::size_t single_arg_bytes, LaunchHints hints) const {
  const DeviceInfo& info = handle_.device()->info();
  const std::array<std::uint32_t, 3> blocks{grid.x, grid.y, grid.z}, threads{block.x, block.y, block.z};
  std::uint64_t in_block = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (blocks[i] == 0 || blocks[i] > info.grid_max[i]) {
      return Status::refused("launch", "the grid is empty or larger than the device's limit");
    }
    if (threads[i] == 0 || threads[i] > info.block_max[i]) {
      return Status::refused("launch", "the block is empty or larger than the device's limit");
    }
    in_block *= threads[i];
  }
  if (in_block > static_cast<std::uint64_t>(info.threads_per_block_max)) {
    return Status::refused("launch", "the block has more threads than the device's limit");
  }
  if (lds_bytes > info.lds_bytes_per_block) {
    return Status::refused("launch", "the block needs more LDS than the device has");
  }
  if (function.device_ == nullptr || function.device_->ordinal != handle_.device()->ordinal) {
    return Status::refused("launch", "the kernel is loaded on another device");
  }
  return handle_.device()->with([&](Api& api) {
    return api.launch({function.function_, handle_.get(), grid, block, lds_bytes, args, single_arg_bytes, hints});
  });
}

Status Stream::query() const {
  return handle_.device()->with([&](Api& api) { return api.stream_query(handle_.get()); });
}

Status Stream::synchronize() const {
  return handle_.device()->with([&](Api& api) { return api.stream_synchronize(handle_.get()); });
}

GraphExec::Recording::Recording(const Stream& stream, std::string_view what) : stream_(stream), what_(what) {
  stream.handle_.device()
      ->with([&](Api& api) { return api.capture_begin(stream.handle_.get()); })
      .check("starting to record " + what_);
}

GraphExec::Recording::~Recording() {
  if (!open_) return;
  // The body or finish() has thrown: end the capture so that the stream can be used again. Errors here are ignored,
  // because the first error is the one to report.
  DeviceState& device = *stream_.handle_.device();
  void* graph = nullptr;
  const Status ended = device.with([&](Api& api) { return api.capture_end(stream_.handle_.get(), &graph); });
  if (ended.ok() && graph != nullptr) device.driver->released(device.api().graph_destroy(graph));
}

GraphExec GraphExec::Recording::finish() {
  const auto& device = stream_.handle_.device();
  void* graph = nullptr;
  // If this fails, the destructor tries once more: a stream that is still capturing cannot even be destroyed.
  device->with([&](Api& api) { return api.capture_end(stream_.handle_.get(), &graph); }).check("recording " + what_);
  open_ = false;
  Handle exec(HandleKind::kGraphExec, device);
  const Status made = device->with([&](Api& api) { return api.graph_instantiate(exec.out(), graph); });
  // The executable graph is independent of the graph that it was made from.
  device->driver->released(device->api().graph_destroy(graph));
  made.check("instantiating the recorded " + what_);
  return GraphExec(std::move(exec));
}

Status GraphExec::upload(const Stream& stream) const {
  const Status status =
      handle_.device()->with([&](Api& api) { return api.graph_upload(handle_.get(), stream.handle_.get()); });
  return status.outcome() == Outcome::kUnavailable ? Status() : status;  // the first launch does it then
}

Status GraphExec::launch(const Stream& stream) const {
  return handle_.device()->with([&](Api& api) { return api.graph_launch(handle_.get(), stream.handle_.get()); });
}

}  // namespace forge::driver
