// The executor's decode loop. Two graph launches a step and an event behind them; the token comes through pinned
// memory.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <span>
#include <thread>

#include "kernels/gpu/step_io.h"
#include "runtime/gpu/executor.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

constexpr std::int32_t kNoToken = -1;  ///< in the ring: the step has left none yet

}  // namespace

bool GpuExecutor::can_sample(const SamplerParams& params) const {
  const bool penalties = params.repeat_penalty != 1 || params.frequency_penalty != 0 || params.presence_penalty != 0;
  return !penalties && params.logit_bias.empty() && (params.temperature == 0 || params.typical_p >= 1);
}

void GpuExecutor::write_sampling(const GpuVariant& variant, const DecodeStart& start) {
  auto* rows = mirror<gpu::SamplingRow>(variant.io.sampling);
  for (std::size_t s = 0; s < start.samplers.size(); ++s) {
    const auto& sampler = start.samplers[s];
    const auto& params = sampler.params();
    invariant(can_sample(params) && sampler.draws() <= std::numeric_limits<std::uint32_t>::max(), "RT-012",
              "the device can sample what it is asked to");
    rows[s] = {.temperature = params.temperature,
               .top_p = params.top_p,
               .min_p = params.min_p,
               .top_k = params.top_k,
               .seed_low = static_cast<std::uint32_t>(params.seed),
               .seed_high = static_cast<std::uint32_t>(params.seed >> 32),
               .draws = static_cast<std::uint32_t>(sampler.draws()),
               .reserved = 0};
  }
}

void GpuExecutor::start(const DecodeStart& start) {
  invariant(loop_.variant == nullptr, "RT-011", "a decode loop is stopped before other steps run");
  const std::size_t sequences = start.ids.size();
  invariant(sequences > 0 && sequences <= sequences_max_ && start.positions.size() == sequences &&
                start.samplers.size() == sequences && start.steps_max > 0,
            "RT-013", "a decode loop has steps and sequences, no more than the plan's largest decode variant");
  const auto& variant = *std::ranges::find_if(
      variants_, [&](const GpuVariant& v) { return !v.sample.empty() && sequences <= v.sequences; });
  // Checked and copied are the tables as far as the loop can reach; the lengths are the first step's.
  const auto reach = std::span(loop_reach_).first(sequences);
  for (std::size_t s = 0; s < sequences; ++s) {
    const auto end = static_cast<std::int64_t>(start.positions[s]) + start.steps_max;
    invariant(end <= std::numeric_limits<std::int32_t>::max(), "RT-003", "a sequence is longer than its block table");
    reach[s] = static_cast<std::int32_t>(end);
  }
  const auto rows = std::span<const std::int32_t>(loop_rows_).first(sequences);
  write_inputs(variant, {.ids = start.ids,
                         .positions = start.positions,
                         .sequence = rows,
                         .rows = rows,
                         .kv_length = reach,
                         .block_table = start.block_table,
                         .table_stride = start.table_stride});
  auto* lengths = mirror<std::int32_t>(variant.io.kv_length);
  for (std::size_t s = 0; s < sequences; ++s) lengths[s] = start.positions[s] + 1;
  write_sampling(variant, start);
  upload_inputs(variant, sequences);
  loop_ = {.variant = &variant, .sequences = sequences, .steps_max = static_cast<std::uint64_t>(start.steps_max)};
}

void GpuExecutor::submit() {
  constexpr const char* kDoing = "running a step";
  invariant(loop_.variant != nullptr && in_flight() < in_flight_max() && loop_.submitted < loop_.steps_max, "RT-014",
            "a step is submitted while a loop runs, has room, and has steps left");
  const auto& variant = *loop_.variant;
  const auto v = index_of(variant);
  std::ranges::fill(tokens_of(loop_.submitted), kNoToken);
  launch_forward(variant);
  if (timer_)
    timer_->launch(variant.sample, timer_->sample(v), stream_).check(kDoing);
  else
    graphs_[v].sample->launch(stream_).check(kDoing);
  step_done_[loop_.submitted % kInFlightMax].record(stream_).check(kDoing);
  ++loop_.submitted;
}

/// The tokens that the sampling kernel of a step leaves, one for each sequence.
std::span<std::int32_t> GpuExecutor::tokens_of(std::uint64_t step) const {
  auto* ring = reinterpret_cast<std::int32_t*>(sampled_.data());
  return {ring + step % gpu::kSampledRing * loop_.variant->rows, loop_.sequences};
}

/// A driver's own way to sleep until an event takes an interrupt and tens of microseconds of the host each time. Steps
/// take much alike, so one nap is nearly always enough: it becomes a little shorter when it was long enough, and longer
/// when it was not. Another step is in flight, so that the device does not wait for a late awakening. Tokens that are
/// there tell that a step is done without asking the driver; it is asked when they are not, and tells of failures.
void GpuExecutor::wait_for_step(std::uint64_t step) {
  constexpr const char* kDoing = "waiting for a step";
  constexpr Clock::duration kShortest = std::chrono::microseconds(20);
  const auto& done = step_done_[step % kInFlightMax];
  const auto tokens = tokens_of(step);
  const auto are_there = [&] {
    return std::ranges::all_of(
        tokens, [](std::int32_t& token) { return std::atomic_ref(token).load(std::memory_order_acquire) != kNoToken; });
  };
  auto& nap = loop_.nap;
  if (step < 2 || in_flight_max() < 2) {  // how long steps take is not known yet
    const auto begin = Clock::now();
    done.synchronize().check(kDoing);
    nap = std::max(kShortest, (Clock::now() - begin) / 2);
    return;
  }
  if (are_there()) {
    nap = std::max(kShortest, nap * 3 / 4);
    return;
  }
  std::this_thread::sleep_for(nap);
  if (are_there()) {
    nap = std::max(kShortest, nap - nap / 32);
    return;
  }
  nap += nap / 8;
  for (auto status = done.query(); !status.ok(); status = done.query()) {
    if (status.outcome() != driver::Outcome::kNotReady) status.check(kDoing);
    std::this_thread::sleep_for(std::max(kShortest, nap / 8));
    if (are_there()) return;
  }
}

std::span<const std::int32_t> GpuExecutor::take() {
  invariant(in_flight() > 0, "RT-015", "a step was submitted before its tokens are taken");
  wait_for_step(loop_.taken);
  if (timer_) timer_->collect();
  const auto tokens = tokens_of(loop_.taken);
  ++loop_.taken;
  for (const auto token : tokens)
    if (token < 0 || static_cast<std::size_t>(token) >= vocab())
      throw Error(ErrorCode::kDevice, device_name() + " chose a token that does not exist", {},
                  "the device or its driver is broken; --device cpu runs without it");
  return tokens;
}

void GpuExecutor::stop() {
  if (loop_.variant == nullptr) return;
  loop_ = {};
  idle_.record(stream_).check("ending a decode loop");
  idle_.synchronize().check("ending a decode loop");
  if (timer_) timer_->collect();
}

}  // namespace forge::runtime
