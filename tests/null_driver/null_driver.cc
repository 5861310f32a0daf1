// The null driver's state: module images, memory blocks, streams and events with deferred work, captures, injected
// failures, and the test's control of them. The driver calls themselves are in null_column.cc and null_kernels.cc.

#include "tests/null_driver/null_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>
#include <sstream>

#include "tests/null_driver/null_state.h"

namespace forge::driver {

namespace {

constexpr std::string_view kMagic = "forge-null-module";
constexpr std::align_val_t kAlignment{256};

constexpr NullCodeText kCodes[] = {
    {kNullSuccess, "success", "no error"},
    {kNullInvalidValue, "invalid_value", "an argument is wrong"},
    {kNullOutOfMemory, "out_of_memory", "out of memory"},
    {kNullNoDevice, "no_device", "there is no device"},
    {kNullInvalidDevice, "invalid_device", "there is no such device"},
    {kNullInvalidImage, "invalid_image", "not a module of the null driver"},
    {kNullInvalidContext, "invalid_context", "the device is not open or not current"},
    {kNullInvalidHandle, "invalid_handle", "not a live object of this device"},
    {kNullIllegalState, "illegal_state", "the stream is in another state"},
    {kNullNotFound, "not_found", "there is no such kernel"},
    {kNullNotReady, "not_ready", "work is pending"},
    {kNullIllegalAddress, "illegal_address", "memory outside of all live allocations was used"},
    {kNullOutOfResources, "out_of_resources", "the block is too large for the kernel"},
    {kNullLaunchFailed, "launch_failed", "the device faulted"},
    {kNullCaptureUnsupported, "capture_unsupported", "not allowed while recording"},
    {kNullCaptureInvalidated, "capture_invalidated", "an earlier call invalidated the recording"},
    {kNullCaptureMerge, "capture_merge", "two recordings would be joined"},
    {kNullCaptureUnmatched, "capture_unmatched", "the recording began on another stream"},
    {kNullCaptureUnjoined, "capture_unjoined", "a stream of the recording was not joined back"},
    {kNullCaptureIsolation, "capture_isolation", "the recording would depend on work outside it"},
    {kNullCapturedEvent, "captured_event", "the event belongs to a recording"},
    {kNullCaptureWrongThread, "capture_wrong_thread", "the recording began on another thread"},
};

}  // namespace

const NullCodeText& null_code(int code) {
  static constexpr NullCodeText kUnknown{-1, "unknown", "unknown"};
  for (const NullCodeText& row : kCodes) {
    if (row.code == code) return row;
  }
  return kUnknown;
}

/// The image is text: magic and number of kernels, then one line per kernel with its facts and argument sizes.
std::vector<std::byte> null_image(std::span<const NullKernelImage> kernels) {
  std::string text = fmt::format("{} {}\n", kMagic, kernels.size());
  for (const NullKernelImage& kernel : kernels) {
    const FunctionFacts& f = kernel.facts;
    text += fmt::format("{} {} {} {} {} {}", kernel.name, f.registers, f.lds_bytes, f.scratch_bytes,
                        f.threads_per_block_max, kernel.arg_bytes.size());
    for (const std::size_t bytes : kernel.arg_bytes) text += fmt::format(" {}", bytes);
    text += '\n';
  }
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

bool parse_null_image(std::span<const std::byte> image, std::vector<NullKernelImage>* kernels) {
  constexpr std::size_t kCountMax = 4096;
  std::istringstream in(std::string(reinterpret_cast<const char*>(image.data()), image.size()));
  std::string magic;
  std::size_t count = 0;
  if (!(in >> magic >> count) || magic != kMagic || count > kCountMax) return false;
  for (std::size_t i = 0; i < count; ++i) {
    NullKernelImage kernel;
    FunctionFacts& f = kernel.facts;
    std::size_t args = 0;
    if (!(in >> kernel.name >> f.registers >> f.lds_bytes >> f.scratch_bytes >> f.threads_per_block_max >> args)) {
      return false;
    }
    if (args > kCountMax) return false;
    kernel.arg_bytes.resize(args);
    for (std::size_t& bytes : kernel.arg_bytes) {
      if (!(in >> bytes) || bytes == 0 || bytes > kCountMax) return false;
    }
    kernels->push_back(std::move(kernel));
  }
  return true;
}

/// The block that begins at or before the address is the only candidate.
bool NullMemory::holds(const void* memory, std::size_t size) const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  auto block = blocks.upper_bound(address);
  if (block == blocks.begin()) return false;
  --block;
  const std::size_t offset = address - block->first;
  return offset <= block->second.bytes && size <= block->second.bytes - offset;
}

void* NullMemory::allocate(std::size_t size, int device) {
  void* memory = ::operator new(size, kAlignment, std::nothrow);
  if (memory == nullptr) return nullptr;
  std::memset(memory, 0xff, size);
  blocks.emplace(reinterpret_cast<std::uintptr_t>(memory), Block{size, device});
  bytes += size;
  return memory;
}

bool NullMemory::free(void* memory) {
  const auto block = blocks.find(reinterpret_cast<std::uintptr_t>(memory));
  if (block == blocks.end()) return false;
  bytes -= block->second.bytes;
  blocks.erase(block);
  ::operator delete(memory, kAlignment);
  return true;
}

NullMemory::~NullMemory() {
  for (const auto& [address, block] : blocks) ::operator delete(std::bit_cast<void*>(address), kAlignment);
}

/// Injected failures count down per matching call; at 0 the failure is used up. A lost device overrides them.
int NullState::enter(const std::string& function) {
  ++counts.calls;
  ++calls[function];
  int code = kNullSuccess;
  for (auto failure = failures.begin(); failure != failures.end();) {
    const bool counted = failure->function.empty() || failure->function == function;
    if (!counted || --failure->remaining != 0) {
      ++failure;
      continue;
    }
    code = failure->code;
    failure = failures.erase(failure);
  }
  return lost != kNullSuccess ? lost : code;
}

int NullState::current_device() const {
  const auto found = current.find(std::this_thread::get_id());
  return found == current.end() ? -1 : found->second;
}

/// A failed operation is a fault: the device is lost from then on.
int NullState::run(const NullOp& op) {
  if (lost != kNullSuccess) return lost;
  ++counts.executed;
  ++clock_us;
  const int code = op();
  if (code != kNullSuccess) lost = code;
  return code;
}

void NullState::step(NullStream& stream) {
  if (stream.pending.empty()) return;
  const NullOp op = std::move(stream.pending.front());
  stream.pending.pop_front();
  --counts.pending;
  run(op);
}

void NullState::drain(NullStream& stream) {
  while (!stream.pending.empty()) step(stream);
}

void NullState::drain_all() {
  for (const auto& [handle, stream] : streams) drain(*stream);
}

/// During a capture the operation is recorded and counted in the stream's vector clock. With deferred execution it is
/// queued; otherwise it runs now.
int NullState::enqueue(const std::shared_ptr<NullStream>& stream, NullOp op) {
  if (const auto& capture = stream->capture; capture != nullptr) {
    if (capture->failed) return kNullCaptureInvalidated;
    capture->ops.push_back(std::move(op));
    ++capture->seen[stream.get()][stream.get()];
    return kNullSuccess;
  }
  if (!options.deferred) return run(op);
  stream->pending.push_back(std::move(op));
  ++counts.pending;
  return kNullSuccess;
}

/// In a capture the event stores the capture and the stream's vector clock. Otherwise the record gets the next number
/// and becomes an operation of the stream, which stores that number in `done` when it runs.
int NullState::record(NullEvent& event, const std::shared_ptr<NullEvent>& self,
                      const std::shared_ptr<NullStream>& stream) {
  if (stream->capture != nullptr) {
    if (stream->capture->failed) return kNullCaptureInvalidated;
    event.capture = stream->capture;
    event.seen = stream->capture->seen[stream.get()];
    return kNullSuccess;
  }
  event.capture = nullptr;
  event.stream = stream;
  const std::uint64_t generation = ++event.recorded;
  return enqueue(stream, [this, self, generation] {
    self->done = std::max(self->done, generation);
    self->done_at_us = clock_us;
    return kNullSuccess;
  });
}

/// Four cases: a captured event joins the waiting stream to the capture; a capturing stream must not wait for
/// uncaptured work; an event that was never recorded is passed; otherwise the waiting operation runs the other stream's
/// work up to the record.
int NullState::wait(const std::shared_ptr<NullStream>& stream, const std::shared_ptr<NullEvent>& event) {
  const bool captured_event = event->capture != nullptr;
  if (!captured_event && stream->capture != nullptr) {
    if (event->recorded == 0) return kNullSuccess;
    stream->capture->failed = true;  // recorded work cannot depend on work that is not recorded
    return kNullCaptureIsolation;
  }
  if (captured_event) {
    if (stream->capture != nullptr && stream->capture != event->capture) return kNullCaptureMerge;
    if (event->capture->origin == nullptr) return kNullCapturedEvent;  // its recording has ended
    stream->capture = event->capture;
    NullClock& seen = stream->capture->seen[stream.get()];
    for (const auto& [other, ops] : event->seen) seen[other] = std::max(seen[other], ops);
    return kNullSuccess;
  }
  const std::uint64_t generation = event->recorded;
  if (generation == 0) return kNullSuccess;
  return enqueue(stream, [this, event, generation, on = event->stream] {
    while (event->done < generation && !on->pending.empty() && lost == kNullSuccess) step(*on);
    return kNullSuccess;
  });
}

/// One capture per thread and per stream. Corresponds to the thread-local capture mode of HIP and CUDA.
int NullState::begin_capture(const std::shared_ptr<NullStream>& stream) {
  if (stream->capture != nullptr) return kNullIllegalState;
  auto& active = captures[std::this_thread::get_id()];
  if (active != nullptr) return kNullIllegalState;
  active = std::make_shared<NullCapture>();
  active->origin = stream.get();
  active->thread = std::this_thread::get_id();
  active->seen[stream.get()] = {};
  stream->capture = active;
  return kNullSuccess;
}

/// A capture is valid if the origin stream has seen all operations of all member streams, i.e. every fork was joined
/// again.
int NullState::end_capture(const std::shared_ptr<NullStream>& stream, std::shared_ptr<NullGraph>* graph) {
  const std::shared_ptr<NullCapture> capture = stream->capture;
  if (capture == nullptr) return kNullIllegalState;
  if (capture->origin != stream.get()) return kNullCaptureUnmatched;
  if (capture->thread != std::this_thread::get_id()) return kNullCaptureWrongThread;
  bool joined = true;
  for (const auto& [member, seen] : capture->seen) {
    const auto own = seen.find(member);
    const std::uint64_t ops = own == seen.end() ? 0 : own->second;
    joined = joined && capture->seen[stream.get()][member] >= ops;
  }
  for (const auto& [handle, member] : streams) {
    if (member->capture == capture) member->capture = nullptr;
  }
  captures.erase(capture->thread);
  capture->origin = nullptr;
  if (capture->failed) return kNullCaptureInvalidated;
  if (!joined) return kNullCaptureUnjoined;
  *graph = std::make_shared<NullGraph>();
  (*graph)->ops = std::move(capture->ops);
  return kNullSuccess;
}

/// Allocating, freeing or synchronising during a capture invalidates it.
int NullState::forbidden_in_capture() {
  const auto capture = captures.find(std::this_thread::get_id());
  if (capture == captures.end()) return kNullSuccess;
  capture->second->failed = true;
  return kNullCaptureUnsupported;
}

NullControl::NullControl(NullOptions options) : state_(std::make_unique<NullState>(std::move(options))) {}
NullControl::~NullControl() = default;

void NullControl::set_kernel(const std::string& name, NullKernel kernel) {
  const std::scoped_lock lock(state_->mutex);
  state_->kernels[name] = std::move(kernel);
}

void NullControl::set_loader(NullLoader loader) {
  const std::scoped_lock lock(state_->mutex);
  state_->loader = std::move(loader);
}

void NullControl::fail(const std::string& function, std::uint64_t nth, int code) {
  const std::scoped_lock lock(state_->mutex);
  state_->failures.push_back({function, std::max<std::uint64_t>(nth, 1), code});
}

void NullControl::fail_call(std::uint64_t nth, int code) {
  fail("", nth, code);
}

void NullControl::clear_failures() {
  const std::scoped_lock lock(state_->mutex);
  state_->failures.clear();
}

void NullControl::lose_device() {
  const std::scoped_lock lock(state_->mutex);
  state_->lost = kNullLaunchFailed;
}

void NullControl::limit_memory(std::uint64_t bytes) {
  const std::scoped_lock lock(state_->mutex);
  state_->options.memory_bytes = bytes;
}

NullCounts NullControl::counts() const {
  const std::scoped_lock lock(state_->mutex);
  NullCounts counts = state_->counts;
  counts.device_blocks = state_->device_memory.blocks.size();
  counts.device_bytes = state_->device_memory.bytes;
  counts.pinned_blocks = state_->pinned_memory.blocks.size();
  counts.pinned_bytes = state_->pinned_memory.bytes;
  for (const auto& [device, opened] : state_->contexts) counts.contexts += opened;
  counts.streams = state_->streams.size();
  counts.events = state_->events.size();
  counts.modules = state_->modules.size();
  counts.graphs = state_->graphs.size();
  counts.graph_execs = state_->graph_execs.size();
  return counts;
}

std::uint64_t NullControl::calls(const std::string& function) const {
  const std::scoped_lock lock(state_->mutex);
  const auto found = state_->calls.find(function);
  return found == state_->calls.end() ? 0 : found->second;
}

}  // namespace forge::driver
