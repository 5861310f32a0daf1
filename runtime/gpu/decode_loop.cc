// The GPU executor's decode loop and sampling on the device. A step is one graph launch, or two if its masks are made
// while its forward pass runs. The sampled tokens arrive in pinned host memory, and their arrival also tells the host
// that the step is done:
//
//   ring in pinned memory, i32 [kSampledRing][rows]:     step 0 | step 1 | step 2 | ...
//   submit(n): host fills line n with kNoToken, launches the step
//   sample kernel of step n: writes the tokens into line n % kSampledRing
//   take(): waits until no entry of the oldest line is kNoToken

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

constexpr std::int32_t kNoToken = Sampler::kNoToken;  ///< ring entry that the step has not written yet

/// True if one of the first `rows` rows has masks.
bool any_masked(const RowMasks* masks, std::size_t rows) {
  for (std::size_t row = 0; masks != nullptr && row < rows; ++row)
    if (masks->is_masked(row)) return true;
  return false;
}

}  // namespace

/// The sampling kernel has no penalties, no logit bias and no typical filter.
bool GpuExecutor::can_sample(const SamplerParams& params) const {
  const bool penalties = params.repeat_penalty != 1 || params.frequency_penalty != 0 || params.presence_penalty != 0;
  return !penalties && params.logit_bias.empty() && (params.temperature == 0 || params.typical_p >= 1);
}

/// Fills the sampling parameters of each row. draws: made since the samplers counted theirs. Rows without a sampler are
/// sampled greedily and the result is ignored.
void GpuExecutor::write_sampling(const GpuVariant& variant, std::span<const Sampler* const> samplers,
                                 const RowMasks* masks, std::uint64_t draws) {
  auto* rows = mirror<gpu::SamplingRow>(variant.io.sampling);
  for (std::size_t s = 0; s < samplers.size(); ++s) {
    if (samplers[s] == nullptr) {
      rows[s] = {};
      continue;
    }
    const auto& sampler = *samplers[s];
    const auto& params = sampler.params();
    const auto made = sampler.draws() + draws;
    invariant(can_sample(params) && made <= std::numeric_limits<std::uint32_t>::max(), "RT-012",
              "the device supports the sampling parameters");
    rows[s] = {.temperature = params.temperature,
               .top_p = params.top_p,
               .min_p = params.min_p,
               .top_k = params.top_k,
               .seed_low = static_cast<std::uint32_t>(params.seed),
               .seed_high = static_cast<std::uint32_t>(params.seed >> 32),
               .draws = static_cast<std::uint32_t>(made),
               .masked = masks != nullptr && masks->is_masked(s) ? 1U : 0U};
  }
}

/// Enqueues the upload of the masks of the first `rows` rows, in one copy. It runs beside the step's forward pass, on a
/// stream of its own; only the sampling waits for it. The step before must be done: it read the masks before these.
void GpuExecutor::upload_masks(std::size_t rows, RowMasks& masks) {
  const auto bytes = memory_.mask_bytes;
  std::size_t begin = rows, end = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    if (!masks.is_masked(row)) continue;
    const auto mask = masks.mask(row);
    auto* to = mirror<std::uint32_t>(memory_.masks + row * bytes);
    invariant(mask.empty() || mask.size_bytes() == bytes, "RT-018", "a mask has a bit for each token");
    if (mask.empty())
      std::fill_n(to, bytes / sizeof *to, ~0U);
    else
      std::ranges::copy(mask, to);
    begin = std::min(begin, row);
    end = row + 1;
  }
  if (begin >= end) return;
  const auto at = memory_.masks + begin * bytes;
  constexpr const char* kDoing = "uploading masks";
  mask_stream_.upload(io_, at, mirror_, at, (end - begin) * bytes).check(kDoing);
  masks_ready_.record(mask_stream_).check(kDoing);
  stream_.wait(masks_ready_).check(kDoing);
}

/// Writes the inputs of the first step; all later steps' inputs are made on the device by the sampling kernel.
void GpuExecutor::start(const DecodeStart& start) {
  invariant(loop_.variant == nullptr, "RT-011", "a decode loop is stopped before other steps run");
  const std::size_t sequences = start.ids.size();
  invariant(sequences > 0 && sequences <= sequences_max_ && start.positions.size() == sequences &&
                start.samplers.size() == sequences && start.steps_max > 0,
            "RT-013",
            "a decode loop has at least one step and one sequence, and fits the plan's largest decode variant");
  const auto& variant =
      *std::ranges::find_if(variants_, [&](const GpuVariant& v) { return v.loops() && sequences <= v.sequences; });
  // Block tables are checked and copied as far as the loop can reach, so the lengths given here are those after the
  // last step; the lengths of the first step are written afterwards.
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
                         .copies = start.copies,
                         .state_read = start.state_read,
                         .state_write = start.state_write});
  auto* lengths = mirror<std::int32_t>(variant.io.kv_length);
  for (std::size_t s = 0; s < sequences; ++s) lengths[s] = start.positions[s] + 1;
  write_sampling(variant, start.samplers, start.masks, start.draws);
  upload_inputs(variant, sequences);
  copy_blocks(start.copies);
  loop_ = {.variant = &variant,
           .sequences = sequences,
           .masked = any_masked(start.masks, sequences),
           .steps_max = static_cast<std::uint64_t>(start.steps_max)};
}

/// Resets the step's line of the ring before the launch. The line is free: at most kInFlightMax steps are in flight.
void GpuExecutor::submit() {
  invariant(loop_.variant != nullptr && in_flight() < in_flight_max() && loop_.submitted < loop_.steps_max &&
                !loop_.unsampled,
            "RT-014", "a step is submitted while a loop runs, has room, and has steps left");
  const auto& variant = *loop_.variant;
  std::ranges::fill(tokens_of(loop_.submitted), kNoToken);
  if (loop_.masked)
    launch_forward(variant);
  else
    launch_step(variant);
  loop_.unsampled = loop_.masked;
  ++loop_.submitted;
}

/// The masks of the step before are no longer in use: its tokens were taken before these could be computed.
void GpuExecutor::sample(RowMasks& masks) {
  invariant(loop_.unsampled && in_flight() == 1, "RT-019", "a step is sampled after it was submitted, and only once");
  upload_masks(loop_.sequences, masks);
  launch_sample(*loop_.variant);
  loop_.unsampled = false;
}

/// Launches the sampling kernels, as a graph or one by one with timing events.
void GpuExecutor::launch_sample(const GpuVariant& variant) {
  constexpr const char* kDoing = "choosing tokens";
  const auto v = index_of(variant);
  if (timer_)
    timer_->launch(variant.sample, timer_->sample(v), stream_).check(kDoing);
  else
    graphs_[v].sample->launch(stream_).check(kDoing);
}

/// Launches a step's forward pass and its sampling.
void GpuExecutor::launch_step(const GpuVariant& variant) {
  if (timer_) {
    launch_forward(variant);
    launch_sample(variant);
  } else {
    graphs_[index_of(variant)].step->launch(stream_).check("running a step");
  }
}

/// Runs one step outside of a loop. Its tokens are in line 0 of the ring, because the uploaded step count is 0. Logits
/// are copied to the host only for runs of rows that the device does not sample.
SampledTokens GpuExecutor::forward_and_sample(const StepBatch& batch, std::span<const Sampler* const> samplers,
                                              RowMasks* masks) {
  invariant(loop_.variant == nullptr, "RT-011", "a decode loop is stopped before other steps run");
  invariant(samplers.size() == batch.rows.size() && batch.rows.size() <= batch.kv_length.size(), "RT-017",
            "each row of a step has a sampler entry and a sequence");
  const auto& variant = choose_variant(variants_, batch);
  const auto chosen = std::span(chosen_).first(samplers.size());
  const std::span<const float> logits(mirror<const float>(memory_.logits), samplers.size() * vocab());
  const bool samples = !variant.sample.empty();
  const auto chooses = [&](std::size_t row) { return samples && samplers[row] != nullptr; };
  const std::span ring(reinterpret_cast<std::int32_t*>(sampled_.data()), samplers.size());
  std::ranges::fill(ring, kNoToken);
  write_inputs(variant, batch);
  if (samples) write_sampling(variant, samplers, masks);
  upload_step(variant, batch);
  if (!samples) {
    launch_forward(variant);
  } else if (any_masked(masks, samplers.size())) {
    launch_forward(variant);
    upload_masks(samplers.size(), *masks);
    launch_sample(variant);
  } else {
    launch_step(variant);
  }
  for (std::size_t row = 0, end = 0; row < samplers.size(); row = end) {
    for (end = row + 1; end < samplers.size() && chooses(end) == chooses(row);) ++end;
    if (!chooses(row)) download_rows(row, end - row, vocab());
  }
  wait_for_idle();
  for (std::size_t row = 0; row < samplers.size(); ++row)
    chosen[row] = chooses(row) ? checked_token(ring[row]) : kNoToken;
  return {.tokens = chosen, .logits = logits};
}

/// A token outside of the vocabulary can only come from a hardware or driver fault.
std::int32_t GpuExecutor::checked_token(std::int32_t token) const {
  static_assert(kNoFiniteLogits == gpu::kNoFiniteLogits);
  if (token == kNoFiniteLogits || (token >= 0 && static_cast<std::size_t>(token) < vocab())) return token;
  throw Error(ErrorCode::kDevice, device_name() + " chose a token that does not exist", {},
              "the device or its driver is broken; --device cpu runs without it");
}

/// The ring's line of a step: one token per sequence.
std::span<std::int32_t> GpuExecutor::tokens_of(std::uint64_t step) const {
  auto* ring = reinterpret_cast<std::int32_t*>(sampled_.data());
  return {ring + step % gpu::kSampledRing * loop_.variant->rows, loop_.sequences};
}

/// Acquire pairs with the device's write: a token that is visible means that the step's work before it is done.
bool GpuExecutor::is_done(std::uint64_t step) const {
  return std::ranges::all_of(tokens_of(step), [](std::int32_t& token) {
    return std::atomic_ref(token).load(std::memory_order_acquire) != kNoToken;
  });
}

/// Waits for a step by sleeping and polling the ring. The driver's blocking wait takes an interrupt and tens of
/// microseconds of host time per step; spinning would take a core.
///
/// Steps take nearly the same time, so sleeping for about half of the steps in flight is usually enough. The sleep time
/// adapts: it shrinks by 1/32 when it was long enough, by 1/4 if the device ran out of work, and grows by 1/8 when it
/// was too short. The other half of the steps in flight keeps the device busy while the host wakes up late, and one
/// wake-up serves several steps. The driver is queried only if tokens are late; it then also reports device failures.
void GpuExecutor::wait_for_step(std::uint64_t step) {
  constexpr const char* kDoing = "waiting for a step";
  constexpr Clock::duration kShortest = std::chrono::microseconds(20);
  if (timer_) {  // profiling: one step at a time, no step behind this one
    idle_.record(stream_).check(kDoing);
    idle_.synchronize().check(kDoing);
    return;
  }
  if (is_done(step)) return;
  auto& sleep_time = loop_.sleep_time;
  const auto begin = Clock::now();
  std::this_thread::sleep_for(sleep_time);
  std::uint64_t done = step;
  while (done < loop_.submitted && is_done(done)) ++done;
  const auto finished = done - step, wanted = std::max<std::uint64_t>(1, in_flight() / 2);
  if (finished == 0) {
    while (true) {
      const auto status = stream_.query();
      if (is_done(step) || status.ok()) break;  // if the device is done but left no token, checked_token reports it
      if (status.outcome() != driver::Outcome::kNotReady) status.check(kDoing);
      std::this_thread::sleep_for(std::max(kShortest, sleep_time / 8));
    }
    // The first steps calibrate the sleep time.
    sleep_time = step < 2 ? (Clock::now() - begin) / 2 : sleep_time + sleep_time / 8;
  } else if (finished < wanted) {
    sleep_time += sleep_time / 8;
  } else {
    const bool device_ran_dry = finished > wanted && done == loop_.submitted;
    sleep_time -= device_ran_dry ? sleep_time / 4 : sleep_time / 32;
  }
  sleep_time = std::max(kShortest, sleep_time);
}

/// Short steps need more of them in flight: together they should last kAhead, far longer than a wake-up can be late.
std::size_t GpuExecutor::in_flight_max() const {
  constexpr Clock::duration kAhead = std::chrono::milliseconds(1);
  if (timer_) return 1;
  if (loop_.step_time <= Clock::duration::zero()) return kInFlightMin;
  return std::clamp<std::size_t>(static_cast<std::size_t>(1 + kAhead / loop_.step_time), kInFlightMin, kInFlightMax);
}

/// Estimates the time of a step as a moving average of the intervals between takes. Several steps may be taken at one
/// wake-up, but the average is still right.
void GpuExecutor::count_taken() {
  const auto now = Clock::now();
  if (loop_.taken == 1) loop_.step_time = now - loop_.taken_at;
  if (loop_.taken > 1) loop_.step_time += (now - loop_.taken_at - loop_.step_time) / 16;
  loop_.taken_at = now;
  ++loop_.taken;
}

/// Waits for the oldest step, then checks its tokens.
std::span<const std::int32_t> GpuExecutor::take() {
  invariant(in_flight() > (loop_.unsampled ? 1U : 0U), "RT-015", "a step was submitted before its tokens are taken");
  wait_for_step(loop_.taken);
  if (timer_) timer_->collect();
  const auto tokens = tokens_of(loop_.taken);
  count_taken();
  for (const auto token : tokens) static_cast<void>(checked_token(token));
  return tokens;
}

/// Steps in flight finish first: they still use the ring and the KV blocks.
void GpuExecutor::stop() {
  if (loop_.variant == nullptr) return;
  loop_ = {};
  idle_.record(stream_).check("ending a decode loop");
  idle_.synchronize().check("ending a decode loop");
  if (timer_) timer_->collect();
}

}  // namespace forge::runtime
