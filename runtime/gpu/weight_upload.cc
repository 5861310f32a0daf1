#include "runtime/gpu/weight_upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/gpu/gpu_memory.h"
#include "runtime/plan/step.h"
#include "runtime/plan/weight_sources.h"
#include "runtime/program_bounds.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

constexpr std::size_t kSlotBytes = std::size_t{4} << 20;  // small, because pinning memory takes 0.3 ms per MiB
constexpr std::size_t kRowBytesMax = std::size_t{1} << 28;
constexpr std::size_t kReadBytes = std::size_t{1} << 19;  ///< read by one thread at a time
constexpr std::size_t kStreams = 2;
constexpr std::uint64_t kGridThreadsMax = std::uint64_t{1} << 31;  ///< AMD counts the threads of a grid in 32 bits
constexpr std::size_t kRepackArgs = 7;
/// Indices of the members of a repack kernel's argument struct (gpu_io.h).
enum RepackArg : std::size_t { kDestination, kStaged, kFirst, kCount, kRowFirst, kUnit, kStride };

/// Waiting without hurry: yields for the first rounds (some microseconds), then sleeps 20 us per round.
class Backoff {
 public:
  void pause() {
    if (++rounds_ <= kRounds) return std::this_thread::yield();
    std::this_thread::sleep_for(kSleep);
  }
  void reset() { rounds_ = 0; }

 private:
  static constexpr int kRounds = 32;
  static constexpr std::chrono::microseconds kSleep{20};
  int rounds_ = 0;
};

[[noreturn]] void fail(const plan::StepT& step, std::string why) {
  throw Error(ErrorCode::kPlan, fmt::format("load step '{}' of the plan is broken", printable(step.label)),
              std::move(why), "compile the model again (forge-compile)");
}

std::int64_t checked(const plan::StepT& step, std::int64_t number, std::int64_t low, std::int64_t high) {
  if (number < low || number > high) fail(step, "a number is out of range");
  return number;
}

/// The fields that all load steps have in common.
struct LoadPlace {
  std::uint32_t weight = 0, source = 0;
  std::uint16_t to = plan::kNoOperand;
};
LoadPlace place_of(const plan::StepT& step) {
  if (const auto* copy = step.body.AsCopySource()) return {copy->weight, copy->source, copy->to};
  if (const auto* repack = step.body.AsRepack()) return {repack->weight, repack->source, repack->to};
  fail(step, "it is not a load step");
}

}  // namespace

std::size_t staging_slot_bytes(const plan::ProgramT& program) {
  std::size_t row = program.constants.size();
  std::uint64_t all = 0;
  for (const auto& step : program.load_steps)
    if (const auto* repack = step == nullptr ? nullptr : step->body.AsRepack())
      row = std::max(row, static_cast<std::size_t>(checked(*step, repack->row_bytes, 1, kRowBytesMax)));
  for (const auto& weight : program.weights) {
    if (weight == nullptr) continue;
    for (const auto& source : weight->sources)
      if (source != nullptr) all += gpu_aligned(plan::source_bytes(*weight, *source));
  }
  if (row > kRowBytesMax) throw Error(ErrorCode::kPlan, "the size of the plan's constants is out of range");
  const auto share = std::min<std::uint64_t>(all / kStagingSlots, kSlotBytes);
  return gpu_aligned(std::max<std::size_t>({row, static_cast<std::size_t>(share), kGpuAlignment}));
}

WeightUpload::WeightUpload(const driver::Device& device, const plan::ProgramT& program, const GpuMemory& memory,
                           const GpuKernels& kernels, const driver::Buffer& weights, const driver::Buffer& staging,
                           const driver::PinnedBuffer& ring, const WeightSource& model)
    : program_(program),
      memory_(memory),
      kernels_(kernels),
      weights_(weights),
      staging_(staging),
      model_(model),
      ring_(ring) {
  for (const auto& step : program.load_steps) {
    if (step == nullptr) throw Error(ErrorCode::kPlan, "a load step of the plan is missing");
    loads_.push_back(decode(*step));
  }
  std::ranges::stable_sort(loads_, {},
                           [](const Load& load) { return std::pair(load.source.file(), load.source.offset()); });
  cut_into_batches();
  cut_into_reads();
  invariant(ring.bytes() >= memory.need.staging, "RT-016", "the staging ring has room for all slots");
  for (std::size_t i = 0; i < kStreams; ++i) streams_.emplace_back(device);
  for (std::size_t i = 0; i < kStagingSlots; ++i) slot_free_.emplace_back(device);
}

WeightUpload::~WeightUpload() {
  drain();
}

/// Waits for both streams: buffers must not be freed while the device uses them.
void WeightUpload::drain() noexcept {
  for (const auto& stream : streams_) static_cast<void>(stream.synchronize());
}

/// Checks a load step against its weight, its source and the model's files.
WeightUpload::Load WeightUpload::decode(const plan::StepT& step) const {
  const auto place = place_of(step);
  checked(step, place.weight, 0, static_cast<std::int64_t>(program_.weights.size()) - 1);
  const auto* weight = program_.weights[place.weight].get();
  if (weight == nullptr) fail(step, "its weight is missing");
  checked(step, place.source, 0, static_cast<std::int64_t>(weight->sources.size()) - 1);
  const auto* source = weight->sources[place.source].get();
  if (source == nullptr) fail(step, "its source is missing");
  const auto part = WeightPart::of(*weight, *source, model_);
  if (!part) fail(step, part.error());
  if (source->cols != weight->cols) fail(step, "the rows of its source have another length");
  const auto* to = place.to < step.operands.size() ? &step.operands[place.to] : nullptr;
  if (to == nullptr || to->space() != plan::Space::Weights || to->offset() > memory_.constants ||
      weight->offset > memory_.constants || weight->bytes > memory_.constants - weight->offset)
    fail(step, "its weight extends past its block");
  Load load{.source = *part, .weights_offset = static_cast<std::size_t>(to->offset())};
  if (const auto* repack = step.body.AsRepack()) {
    decode_repack(step, *repack, *weight, load);
  } else if (part->bytes() > memory_.constants - load.weights_offset) {
    fail(step, "its copy leaves the weights block");
  }
  return load;
}

/// Checks the row mapping of a repack step (the last row must be inside the weight) and prepares its launch.
void WeightUpload::decode_repack(const plan::StepT& step, const plan::RepackT& repack, const plan::WeightT& weight,
                                 Load& load) const {
  constexpr std::int64_t kRowsMax = std::int64_t{1} << 31;
  if (load.source.rows() > kRowsMax) fail(step, "its source has too many rows");
  const auto rows = static_cast<std::int64_t>(load.source.rows());
  const auto row_bytes = checked(step, repack.row_bytes, 1, kRowBytesMax);
  if (static_cast<std::size_t>(row_bytes) != load.source.row_bytes())
    fail(step, "the rows of its source have another size");
  const auto row_first = checked(step, repack.row_first, 0, kRowsMax), unit = checked(step, repack.unit, 1, kRowsMax),
             stride = checked(step, repack.stride, 0, kRowsMax);
  const auto last = row_first + (rows - 1) / unit * stride + (rows - 1) % unit;
  if (last >= weight.rows) fail(step, fmt::format("row {} of a weight with {}", last, weight.rows));
  load.row_bytes = static_cast<std::size_t>(row_bytes);
  load.blocks_per_row = static_cast<std::uint32_t>(checked(step, repack.blocks_per_row, 1, 1 << 16));
  plan::LaunchT launch;
  launch.code = repack.code;
  launch.blocks = repack.blocks_per_row;
  launch.threads = repack.threads;
  load.repack = kernels_.launch(launch);
  load.repack->args.assign(kRepackArgs, 0);
  load.repack->args[kDestination] = (weights_.address() + load.weights_offset).value;
  load.repack->args[kRowFirst] = static_cast<std::uint64_t>(row_first);
  load.repack->args[kUnit] = static_cast<std::uint64_t>(unit);
  load.repack->args[kStride] = static_cast<std::uint64_t>(stride);
}

/// Distributes the loads over slot-sized batches. Pieces are whole rows, because a repack kernel works on whole rows.
void WeightUpload::cut_into_batches() {
  const std::size_t slot = memory_.staging_slot;
  for (const auto& load : loads_) {
    const std::size_t unit = std::max<std::size_t>(load.row_bytes, 1);
    std::uint64_t most = slot;  // most bytes in one piece; the grid's size limits a repack
    if (load.repack) most = kGridThreadsMax / (load.blocks_per_row * load.repack->threads.x) * unit;
    for (std::uint64_t first = 0; first < load.source.bytes();) {
      const std::uint64_t left = load.source.bytes() - first;
      std::size_t room = batches_.empty() ? 0 : slot - batches_.back().bytes;
      // Do not cut a large piece for the rest of a slot: that would only cause more launches.
      if (room < unit || room < std::min<std::uint64_t>(left, slot / 4)) {
        batches_.emplace_back();
        room = slot;
      }
      auto& batch = batches_.back();
      const std::uint64_t bytes = std::min<std::uint64_t>({left, room, most}) / unit * unit;
      batch.pieces.push_back({.load = &load, .first = first, .bytes = bytes, .slot_offset = batch.bytes});
      batch.bytes = std::min(slot, gpu_aligned(batch.bytes + bytes));
      first += bytes;
    }
  }
}

/// Asks the operating system to read a batch's bytes ahead, so that cold pages are loaded while others are copied.
void WeightUpload::prefetch_batch(std::size_t batch) const {
  if (batch >= batches_.size()) return;
  for (const auto& piece : batches_[batch].pieces) piece.load->source.prefetch(model_, piece.first, piece.bytes);
}

/// Splits pieces into reads of at most 512 KiB, in order. reads_left_[batch] counts reads until the batch is complete.
void WeightUpload::cut_into_reads() {
  reads_left_ = std::vector<std::atomic<std::size_t>>(batches_.size());
  for (std::size_t b = 0; b < batches_.size(); ++b) {
    bool is_first = true;
    for (const auto& piece : batches_[b].pieces) {
      for (std::uint64_t done = 0; done < piece.bytes; done += kReadBytes) {
        reads_.push_back({.batch = b,
                          .source = &piece.load->source,
                          .first = piece.first + done,
                          .slot_offset = b % kStagingSlots * memory_.staging_slot + piece.slot_offset + done,
                          .bytes = std::min<std::size_t>(kReadBytes, piece.bytes - done),
                          .is_first = std::exchange(is_first, false)});
        ++reads_left_[b];
      }
    }
  }
}

/// The dispatcher's loop, on one thread. Enqueues batches in order as soon as they are read completely, and releases
/// slots in order as soon as the device has finished with them. Reads as well while there is nothing else to do.
void WeightUpload::dispatch_uploads() {
  Backoff backoff;
  std::size_t enqueued = 0, freed = 0;  // batches
  while (enqueued < batches_.size() && !stopped_) {
    const auto before = enqueued + freed;
    while (enqueued < batches_.size() && reads_left_[enqueued].load(std::memory_order_acquire) == 0) {
      enqueue(batches_[enqueued], enqueued % kStagingSlots);
      ++enqueued;
    }
    while (freed < enqueued && is_slot_free(freed)) usable_.store(++freed + kStagingSlots, std::memory_order_release);
    if (enqueued + freed > before || read_one())
      backoff.reset();
    else
      backoff.pause();
  }
}

/// True if the device has finished with the batch's slot.
bool WeightUpload::is_slot_free(std::size_t batch) const {
  const auto status = slot_free_[batch % kStagingSlots].query();
  if (status.outcome() == driver::Outcome::kNotReady) return false;
  status.check("waiting for the staging ring");
  return true;
}

/// The readers' loop: claims reads in order until none is left. A reader may have to wait for the slot of its read. The
/// dispatcher must not wait, so read_one() claims only a read whose slot is free.
void WeightUpload::read_pieces() {
  for (Backoff backoff;;) {
    const std::size_t claimed = claimed_++;
    if (claimed >= reads_.size()) return;
    const auto& part = reads_[claimed];
    for (backoff.reset(); part.batch >= usable_.load(std::memory_order_acquire); backoff.pause())
      if (stopped_) return;
    read(part);
  }
}

/// Claims and performs one read whose slot is free; returns false if there is none.
bool WeightUpload::read_one() {
  std::size_t claimed = claimed_;
  do
    if (claimed >= reads_.size() || reads_[claimed].batch >= usable_) return false;
  while (!claimed_.compare_exchange_weak(claimed, claimed + 1));
  read(reads_[claimed]);
  return true;
}

/// The decrement releases the bytes just written to the dispatcher, which acquires them in dispatch_uploads().
void WeightUpload::read(const Read& part) {
  if (part.is_first) prefetch_batch(part.batch + kStagingSlots);
  part.source->read(model_, part.first, ring_.span().subspan(part.slot_offset, part.bytes));
  reads_left_[part.batch].fetch_sub(1, std::memory_order_release);
}

/// Keeps the first error and stops all threads.
void WeightUpload::give_up(std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  if (!failed_) failed_ = std::move(error);
  stopped_ = true;
}

/// One copy of the whole slot to the device, then a repack kernel or a device copy per piece, then the event that frees
/// the slot.
void WeightUpload::enqueue(const Batch& batch, std::size_t slot) {
  constexpr const char* kDoing = "uploading weights";
  const auto& stream = streams_[slot % kStreams];
  const std::size_t base = slot * memory_.staging_slot;
  stream.upload(staging_, base, ring_, base, batch.bytes).check(kDoing);
  for (const auto& piece : batch.pieces) {
    const auto& load = *piece.load;
    const std::size_t staged = base + piece.slot_offset;
    if (!load.repack) {
      stream.copy(weights_, load.weights_offset + piece.first, staging_, staged, piece.bytes).check(kDoing);
      continue;
    }
    auto launch = *load.repack;
    const std::uint64_t count = piece.bytes / load.row_bytes;
    launch.args[kStaged] = (staging_.address() + staged).value;
    launch.args[kFirst] = piece.first / load.row_bytes;
    launch.args[kCount] = count;
    launch.blocks.x = static_cast<std::uint32_t>(count * load.blocks_per_row);
    launch.hints = {};
    launch.on(stream).check(kDoing);
  }
  slot_free_[slot].record(stream).check(kDoing);
}

/// Constants are uploaded through the ring before it is used for weights.
void WeightUpload::upload_constants() {
  if (program_.constants.empty()) return;
  std::memcpy(ring_.data(), program_.constants.data(), program_.constants.size());
  streams_[0].upload(weights_, memory_.constants, ring_, 0, program_.constants.size()).check("uploading constants");
  slot_free_[0].record(streams_[0]).check("uploading constants");
  slot_free_[0].synchronize().check("uploading constants");
}

LoadReport WeightUpload::run(ThreadPool& pool) {
  const auto begin = std::chrono::steady_clock::now();
  LoadReport report;
  upload_constants();
  for (std::size_t b = 0; b < kStagingSlots; ++b) prefetch_batch(b);
  // Tasks are claimed in order, so task 0, the dispatcher, always runs even if fewer threads than tasks do. Tasks must
  // not throw; errors are rethrown below.
  pool.run(pool.size(), [&](std::size_t task, std::size_t) {
    try {
      task == 0 ? dispatch_uploads() : read_pieces();
    } catch (...) {
      give_up(std::current_exception());
    }
  });
  if (failed_) std::rethrow_exception(failed_);
  for (const auto& part : reads_) report.bytes += part.bytes;
  for (const auto& stream : streams_) stream.synchronize().check("uploading weights");
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace forge::runtime
