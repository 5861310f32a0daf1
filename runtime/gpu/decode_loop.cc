// The executor's decode loop. Two graph launches a step, and nothing else: the token comes through pinned memory, and
// tells that its step is done.

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

constexpr std::int32_t kNoToken = Sampler::kNoToken;  ///< in the ring: the step has left none yet

}  // namespace

bool GpuExecutor::can_sample(const SamplerParams& params) const {
  const bool penalties = params.repeat_penalty != 1 || params.frequency_penalty != 0 || params.presence_penalty != 0;
  return !penalties && params.logit_bias.empty() && (params.temperature == 0 || params.typical_p >= 1);
}

/// Rows without a sampler take the largest logit, which nobody reads.
void GpuExecutor::write_sampling(const GpuVariant& variant, std::span<const Sampler* const> samplers) {
  auto* rows = mirror<gpu::SamplingRow>(variant.io.sampling);
  for (std::size_t s = 0; s < samplers.size(); ++s) {
    if (samplers[s] == nullptr) {
      rows[s] = {};
      continue;
    }
    const auto& sampler = *samplers[s];
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
  const auto& variant =
      *std::ranges::find_if(variants_, [&](const GpuVariant& v) { return v.loops() && sequences <= v.sequences; });
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
                         .table_stride = start.table_stride,
                         .copies = start.copies});
  auto* lengths = mirror<std::int32_t>(variant.io.kv_length);
  for (std::size_t s = 0; s < sequences; ++s) lengths[s] = start.positions[s] + 1;
  write_sampling(variant, start.samplers);
  upload_inputs(variant, sequences);
  copy_blocks(start.copies);
  loop_ = {.variant = &variant, .sequences = sequences, .steps_max = static_cast<std::uint64_t>(start.steps_max)};
}

void GpuExecutor::submit() {
  invariant(loop_.variant != nullptr && in_flight() < in_flight_max() && loop_.submitted < loop_.steps_max, "RT-014",
            "a step is submitted while a loop runs, has room, and has steps left");
  const auto& variant = *loop_.variant;
  std::ranges::fill(tokens_of(loop_.submitted), kNoToken);
  launch_forward(variant);
  launch_sample(variant);
  ++loop_.submitted;
}

void GpuExecutor::launch_sample(const GpuVariant& variant) {
  constexpr const char* kDoing = "choosing tokens";
  const auto v = index_of(variant);
  if (timer_)
    timer_->launch(variant.sample, timer_->sample(v), stream_).check(kDoing);
  else
    graphs_[v].sample->launch(stream_).check(kDoing);
}

/// The first line of the ring has the tokens: the inputs say that none has been sampled yet.
ChosenTokens GpuExecutor::forward_and_choose(const StepBatch& batch, std::span<const Sampler* const> samplers) {
  invariant(loop_.variant == nullptr, "RT-011", "a decode loop is stopped before other steps run");
  invariant(samplers.size() == batch.rows.size() && batch.rows.size() <= batch.kv_length.size(), "RT-017",
            "a step's rows have samplers, and sequences of their own");
  const auto& variant = choose_variant(variants_, batch);
  const auto chosen = std::span(chosen_).first(samplers.size());
  const std::span<const float> logits(mirror<const float>(memory_.logits), samplers.size() * vocab());
  const bool samples = !variant.sample.empty();
  const auto chooses = [&](std::size_t row) { return samples && samplers[row] != nullptr; };
  const std::span ring(reinterpret_cast<std::int32_t*>(sampled_.data()), samplers.size());
  std::ranges::fill(ring, kNoToken);
  write_inputs(variant, batch);
  if (samples) write_sampling(variant, samplers);
  begin_step(variant, batch);
  if (samples) launch_sample(variant);
  for (std::size_t row = 0, end = 0; row < samplers.size(); row = end) {
    for (end = row + 1; end < samplers.size() && chooses(end) == chooses(row);) ++end;
    if (!chooses(row)) download_logits(row, end - row);
  }
  wait_for_idle();
  for (std::size_t row = 0; row < samplers.size(); ++row)
    chosen[row] = chooses(row) ? checked_token(ring[row]) : kNoToken;
  return {.tokens = chosen, .logits = logits};
}

std::int32_t GpuExecutor::checked_token(std::int32_t token) const {
  static_assert(kNoNumbers == gpu::kNoNumbers);
  if (token == kNoNumbers || (token >= 0 && static_cast<std::size_t>(token) < vocab())) return token;
  throw Error(ErrorCode::kDevice, device_name() + " chose a token that does not exist", {},
              "the device or its driver is broken; --device cpu runs without it");
}

/// The tokens that the sampling kernel of a step leaves, one for each sequence.
std::span<std::int32_t> GpuExecutor::tokens_of(std::uint64_t step) const {
  auto* ring = reinterpret_cast<std::int32_t*>(sampled_.data());
  return {ring + step % gpu::kSampledRing * loop_.variant->rows, loop_.sequences};
}

bool GpuExecutor::is_done(std::uint64_t step) const {
  return std::ranges::all_of(tokens_of(step), [](std::int32_t& token) {
    return std::atomic_ref(token).load(std::memory_order_acquire) != kNoToken;
  });
}

/// A driver's own way to sleep until work is done takes an interrupt and tens of microseconds of the host each time.
/// Steps take much alike, so naps of about half of what is in flight are nearly always enough: a nap becomes a little
/// shorter when it was long enough, and longer when it was not. The other half keeps the device busy while the host
/// awakes late, and steps that ended together cost one nap. Tokens that are there tell that a step is done; the driver
/// is asked only when they are late, and tells of failures.
void GpuExecutor::wait_for_step(std::uint64_t step) {
  constexpr const char* kDoing = "waiting for a step";
  constexpr Clock::duration kShortest = std::chrono::microseconds(20);
  if (timer_) {  // nothing runs behind the step
    idle_.record(stream_).check(kDoing);
    idle_.synchronize().check(kDoing);
    return;
  }
  if (is_done(step)) return;
  auto& nap = loop_.nap;
  const auto begin = Clock::now();
  std::this_thread::sleep_for(nap);
  std::uint64_t done = step;
  while (done < loop_.submitted && is_done(done)) ++done;
  const auto finished = done - step, wanted = std::max<std::uint64_t>(1, in_flight() / 2);
  if (finished == 0) {
    while (true) {
      const auto status = stream_.query();
      if (is_done(step) || status.ok()) break;  // a device that is done and has left no token: the caller sees it
      if (status.outcome() != driver::Outcome::kNotReady) status.check(kDoing);
      std::this_thread::sleep_for(std::max(kShortest, nap / 8));
    }
    // How long steps take is not known at first.
    nap = step < 2 ? (Clock::now() - begin) / 2 : nap + nap / 8;
  } else if (finished < wanted) {
    nap += nap / 8;
  } else {
    const bool is_dry = finished > wanted && done == loop_.submitted;
    nap -= is_dry ? nap / 4 : nap / 32;
  }
  nap = std::max(kShortest, nap);
}

/// Short steps need more of them in flight: together they last kAhead, far longer than an awakening is late.
std::size_t GpuExecutor::in_flight_max() const {
  constexpr Clock::duration kAhead = std::chrono::milliseconds(1);
  if (timer_) return 1;
  if (loop_.step_time <= Clock::duration::zero()) return kInFlightMin;
  return std::clamp<std::size_t>(static_cast<std::size_t>(1 + kAhead / loop_.step_time), kInFlightMin, kInFlightMax);
}

/// The mean of some steps is what a step takes, though several may be taken at one awakening.
void GpuExecutor::count_taken() {
  const auto now = Clock::now();
  if (loop_.taken == 1) loop_.step_time = now - loop_.taken_at;
  if (loop_.taken > 1) loop_.step_time += (now - loop_.taken_at - loop_.step_time) / 16;
  loop_.taken_at = now;
  ++loop_.taken;
}

std::span<const std::int32_t> GpuExecutor::take() {
  invariant(in_flight() > 0, "RT-015", "a step was submitted before its tokens are taken");
  wait_for_step(loop_.taken);
  if (timer_) timer_->collect();
  const auto tokens = tokens_of(loop_.taken);
  count_taken();
  for (const auto token : tokens) static_cast<void>(checked_token(token));
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
