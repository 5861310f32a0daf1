#include "runtime/gpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "kernels/gpu/step_io.h"
#include "runtime/gpu/weight_upload.h"
#include "runtime/plan/step.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

// Threads waiting for such an event sleep instead of spinning.
constexpr driver::EventOptions kBlockingWait{.blocking = true};

/// Stopwatch for the load report.
class Stopwatch {
 public:
  /// Seconds since construction or the last call.
  [[nodiscard]] double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(begin_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

double mebibytes(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

/// The code objects are for one architecture: the plan's target must be the device's.
void check_target(const plan::ProgramT& program, const driver::DeviceInfo& info) {
  if (facts_of(program).on_host || program.target != info.target)
    throw Error(ErrorCode::kPlan, fmt::format("{} cannot run the plan's program", info.name),
                fmt::format("it is for '{}', and the device is '{}'", printable(program.target), info.target),
                "compile the model for this device");
}

/// Throws before anything is allocated or loaded if the program does not fit, listing what needs how much.
void check_memory(const MemoryRequirements& need, const driver::Device& device) {
  const auto free_bytes = device.free_bytes();
  if (need.total() <= free_bytes) return;
  throw Error(
      ErrorCode::kMemory,
      fmt::format("{:.1f} MiB do not fit into the memory of {}", mebibytes(need.total()), device.info().name),
      fmt::format("weights {:.1f}, KV {:.1f}, recurrent state {:.1f}, arena {:.1f}, staging {:.1f}, step I/O {:.1f} "
                  "MiB; {:.1f} of {:.1f} MiB are free",
                  mebibytes(need.weights), mebibytes(need.kv), mebibytes(need.recurrent), mebibytes(need.arena),
                  mebibytes(need.staging), mebibytes(need.io), mebibytes(free_bytes),
                  mebibytes(device.info().memory_bytes)),
      "use a smaller context (-c), a smaller batch or a smaller model");
}

}  // namespace

GpuExecutor::GpuExecutor(std::shared_ptr<const plan::ProgramT> program, const WeightSource& model,
                         const driver::Device& device, const ExecutorOptions& options)
    : Executor(std::move(program), options.kv_blocks, options.state_slots),
      device_(device),
      memory_(*program_, options.kv_blocks, options.state_slots),
      stream_(device),
      idle_(device, kBlockingWait),
      mask_stream_(device),
      masks_ready_(device) {
  // Cheap checks first, then kernels, memory, variants (which need addresses), weights, graphs.
  check_target(*program_, device_.info());
  check_memory(memory_.need, device_);
  Stopwatch stopwatch;
  kernels_.emplace(*program_, device_);
  const double kernels_seconds = stopwatch.lap();
  allocate_memory();
  decode_variants();
  if (options.profile) timer_.emplace(device_, variants_);
  {
    ThreadPool pool(options.threads);
    threads_ = pool.size();
    WeightUpload upload(device_, *program_, memory_, *kernels_, weights_, staging_, mirror_, model);
    const double memory_seconds = stopwatch.lap();
    load_ = upload.run(pool);
    load_.kernels_seconds = kernels_seconds;
    load_.memory_seconds = memory_seconds;
  }
  (void)stopwatch.lap();
  // Clear the counters and inputs once; kernels leave the counters at 0 after each step.
  std::memset(mirror_.data(), 0, memory_.inputs_end);
  stream_.fill(io_, 0, 0, memory_.inputs_end).check("clearing the step's inputs");
  if (!timer_) record_graphs();
  idle_.record(stream_).check("opening the program");
  idle_.synchronize().check("opening the program");
  load_.graphs_seconds = stopwatch.lap();
}

GpuExecutor::~GpuExecutor() {
  static_cast<void>(mask_stream_.synchronize());  // the members that they use are destroyed next
  static_cast<void>(stream_.synchronize());
}

/// The only device allocations of the executor. The pinned buffer serves as staging ring while weights are loaded, and
/// as mirror of the step I/O block afterwards: pinning memory is slow.
void GpuExecutor::allocate_memory() {
  const auto& need = memory_.need;
  weights_ = driver::Buffer(device_, need.weights, "the weights");
  arena_ = driver::Buffer(device_, need.arena, "the arena");
  kv_ = driver::Buffer(device_, need.kv, "the KV cache");
  if (need.recurrent > 0) recurrent_ = driver::Buffer(device_, need.recurrent, "the recurrent state");
  staging_ = driver::Buffer(device_, need.staging, "staging");
  io_ = driver::Buffer(device_, need.io, "step I/O");
  mirror_ = driver::PinnedBuffer(device_, std::max(need.io, need.staging), "step I/O and staging");
  sampled_ = driver::PinnedBuffer(device_, memory_.sampled_bytes, "sampled tokens");
}

/// Resolves all addresses and finds the largest batch that the decode loop can run.
void GpuExecutor::decode_variants() {
  const bool need_states = memory_.need.recurrent > 0;
  const GpuAddresses addresses{.weights = weights_.address(),
                               .arena = arena_.address(),
                               .kv = kv_.address(),
                               .io = io_.address(),
                               .recurrent = need_states ? recurrent_.address() : driver::Address{},
                               .sampled = sampled_.address()};
  variants_ = decode_gpu_variants(*program_, memory_, GpuResolver(*program_, memory_, addresses), *kernels_);
  for (const auto& variant : variants_)
    if (variant.loops()) sequences_max_ = std::max(sequences_max_, variant.sequences);
  loop_rows_.resize(sequences_max_);
  std::iota(loop_rows_.begin(), loop_rows_.end(), 0);
  loop_reach_.resize(sequences_max_);
  chosen_.resize(rows_max());
}

/// Captures each variant's launches into graphs once; a step then replays them with one call.
void GpuExecutor::record_graphs() {
  const auto record = [&](const std::string& name, std::initializer_list<std::span<const GpuLaunch>> parts) {
    auto graph = driver::GraphExec::record(stream_, name, [&] {
      for (const auto& part : parts)
        for (const auto& launch : part) launch.on(stream_).check("recording " + name);
    });
    graph.upload(stream_).check("uploading the graph of " + name);
    return graph;
  };
  for (const auto& variant : variants_) {
    Graphs graphs;
    if (!variant.forward.empty()) graphs.forward = record(variant.name + " forward", {variant.forward});
    if (!variant.sample.empty()) {
      graphs.sample = record(variant.name + " sample", {variant.sample});
      graphs.step = record(variant.name + " step", {variant.forward, variant.sample});
    }
    graphs_.push_back(std::move(graphs));
  }
}

/// Pointers into the pinned mirror at the variant's input offsets.
StepInputs GpuExecutor::mirror_of(const GpuVariant& variant) const {
  const auto& io = variant.io;
  return {.ids = mirror<std::int32_t>(io.ids),
          .positions = mirror<std::int32_t>(io.positions),
          .sequence = mirror<std::int32_t>(io.sequence),
          .rows = mirror<std::int32_t>(io.rows),
          .kv_length = mirror<std::int32_t>(io.kv_length),
          .block_table = mirror<std::int32_t>(io.block_table),
          .state_read = mirror<std::int32_t>(io.state_read),
          .state_write = mirror<std::int32_t>(io.state_write),
          .table_stride = variant.table_blocks,
          .group_stride = io.table_bytes / sizeof(std::int32_t)};
}

/// Writes the variant's inputs into the mirror. No copy from the mirror may be in flight. Rows up to the variant's
/// bounds are padding: id 0, position -1 (kernels skip it), sequence 0, length 0.
void GpuExecutor::write_inputs(const GpuVariant& variant, const StepBatch& batch) {
  const auto to = mirror_of(variant);
  const std::size_t tokens = batch.ids.size(), sequences = batch.kv_length.size();
  copy_checked_inputs(batch,
                      {.vocab = vocab(),
                       .rooms = kv_pool_sizes(),
                       .block_tokens = static_cast<std::size_t>(kv_block_tokens()),
                       .table_blocks = variant.table_blocks,
                       .state_slots = state_slots()},
                      to);
  std::fill(to.ids + tokens, to.ids + variant.tokens, 0);
  std::fill(to.positions + tokens, to.positions + variant.tokens, -1);
  std::fill(to.sequence + tokens, to.sequence + variant.tokens, 0);
  std::fill(to.rows + batch.rows.size(), to.rows + variant.rows, 0);
  std::fill(to.kv_length + sequences, to.kv_length + variant.sequences, 0);
  auto* counts = mirror<std::int32_t>(variant.io.counts);
  counts[gpu::kTokenCount] = static_cast<std::int32_t>(tokens);
  counts[gpu::kRowCount] = static_cast<std::int32_t>(batch.rows.size());
  counts[gpu::kSequenceCount] = static_cast<std::int32_t>(sequences);
  counts[gpu::kSampledCount] = 0;
}

/// Uploads the mirror's inputs in one copy. Block tables come last in the layout; of the last KV group's tables only
/// those of the used sequences are copied.
void GpuExecutor::upload_inputs(const GpuVariant& variant, std::size_t sequences) {
  const std::size_t whole_groups = kv_pool_sizes().empty() ? 0 : kv_pool_sizes().size() - 1;
  const std::size_t end = variant.io.block_table + whole_groups * variant.io.table_bytes +
                          sequences * variant.table_blocks * sizeof(std::int32_t);
  stream_.upload(io_, variant.io.begin, mirror_, variant.io.begin, end - variant.io.begin).check("uploading a step");
}

/// Copies KV blocks on the device (copy on write). A block consists of one part per layer for K and one for V
/// (gpu_memory.h).
void GpuExecutor::copy_blocks(std::span<const BlockCopy> copies) {
  for (const auto& copy : copies)
    for (std::size_t g = 0; g < memory_.kv_groups.size(); ++g) {
      if (!copy_applies_to(copy, kv_pool_sizes(), g)) continue;
      const auto& group = program_->kv_groups[g];
      const KvPlanes planes(group);
      for (std::size_t plane = 0; plane < 2 * static_cast<std::size_t>(group.layers()); ++plane) {
        const std::size_t bytes = plane % 2 == 0 ? planes.keys : planes.values;
        const std::size_t begin = memory_.kv_groups[g] + planes.begin(plane, kv_pool_sizes()[g].blocks);
        if (bytes == 0) continue;
        stream_
            .copy(kv_, begin + static_cast<std::size_t>(copy.to) * bytes, kv_,
                  begin + static_cast<std::size_t>(copy.from) * bytes, bytes)
            .check("copying a KV block");
      }
    }
}

void GpuExecutor::launch_forward(const GpuVariant& variant) {
  constexpr const char* kDoing = "running a step";
  const auto v = index_of(variant);
  if (timer_)
    timer_->launch(variant.forward, timer_->forward(v), stream_).check(kDoing);
  else if (graphs_[v].forward)
    graphs_[v].forward->launch(stream_).check(kDoing);
}

/// All that a step needs before its launches, enqueued on one stream; nothing waits.
void GpuExecutor::upload_step(const GpuVariant& variant, const StepBatch& batch) {
  upload_inputs(variant, batch.kv_length.size());
  copy_blocks(batch.copies);
}

/// Enqueues the copy of `rows` rows of results (logits or hidden rows) of `width` columns from row `first` on into the
/// mirror.
void GpuExecutor::download_rows(std::size_t first, std::size_t rows, std::size_t width) {
  const std::size_t row = width * sizeof(float), at = memory_.logits + first * row;
  stream_.download(mirror_, at, io_, at, rows * row).check("reading results");
}

/// Blocks until all enqueued work is done.
void GpuExecutor::wait_for_idle() {
  idle_.record(stream_).check("running a step");
  idle_.synchronize().check("waiting for a step");
  if (timer_) timer_->collect();
}

std::span<const float> GpuExecutor::forward(const StepBatch& batch) {
  invariant(loop_.variant == nullptr, "RT-011", "a decode loop is stopped before other steps run");
  const auto& variant = choose_variant(variants_, batch);
  const std::size_t width = batch.hidden ? variant.hidden_width : vocab();
  write_inputs(variant, batch);
  upload_step(variant, batch);
  launch_forward(variant);
  download_rows(0, batch.rows.size(), width);
  wait_for_idle();
  return {mirror<const float>(memory_.logits), batch.rows.size() * width};
}

std::vector<StepProfile> GpuExecutor::profile() const {
  std::vector<StepProfile> rows;
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    const auto add = [&](const std::vector<std::unique_ptr<plan::StepT>>& steps, std::span<const StepTime> times) {
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const auto& step = *steps[i];
        rows.push_back({.variant = variants_[v].name,
                        .label = step.label,
                        .kernel = plan::kernel_name(*program_, step),
                        .layer = step.layer,
                        .calls = times.empty() ? 0 : times[i].calls,
                        .nanoseconds = times.empty() ? 0 : times[i].nanoseconds,
                        .filled = times.empty() ? 0 : static_cast<double>(times[i].calls),
                        .weight_bytes = step.weight_bytes,
                        .activation_bytes = step.activation_bytes,
                        .flops = step.flops});
      }
    };
    const std::span<const StepTime> none;
    add(program_->variants[v]->steps, timer_ ? timer_->forward(v) : none);
    add(program_->variants[v]->sample_steps, timer_ ? timer_->sample(v) : none);
  }
  return rows;
}

/// Two transfers per clock: true of all current GPU memories with the clock that the drivers report.
double GpuExecutor::memory_bandwidth() const {
  const auto& info = device_.info();
  return 2.0 * info.memory_clock_khz * 1e3 * info.memory_bus_bits / 8;
}

}  // namespace forge::runtime
