#pragma once
// The interface that every back-end implements to run a compiled program: CpuExecutor (runtime/cpu), GpuExecutor
// (runtime/gpu) and the fake ones of the tests. The engine and the tools use this interface only, so none of them
// depends on a device.
//
// One step goes like this:
//
//   StepBatch (token ids, positions, block table) -> forward() -> logits f32 [R, vocab] -> Sampler (host)
//                                                 \-> decode_loop()->forward_and_sample() -> token ids (device samples)
//
// Not thread-safe: one thread owns an executor.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/kv/kv_window.h"
#include "runtime/plan/plan_generated.h"
#include "runtime/program_facts.h"
#include "runtime/sampler.h"
#include "runtime/step_batch.h"
#include "support/error.h"

namespace forge::runtime {

struct PackedWeightsOptions;
class StepTrace;  // NOLINT(cppcoreguidelines-virtual-class-destructor): it is final

/// Options of an executor's constructor.
struct ExecutorOptions {
  std::size_t threads = 0;                       ///< host threads that compute or copy; 0: all that the process may use
  std::int64_t kv_blocks = 0;                    ///< KV blocks shared by all sequences; 0: the plan's context x batch
  std::int64_t state_slots = 0;                  ///< slots of recurrent state; 0: one for each sequence of the plan
  bool profile = false;                          ///< measure the time of each step
  const PackedWeightsOptions* packed = nullptr;  ///< CPU: where repacked weights are cached; nullptr: no cache
};

/// Bytes that an executor allocates on its device, by purpose. Known before anything is loaded, so a model that does
/// not fit is refused early.
struct MemoryRequirements {
  std::size_t weights = 0, arena = 0, kv = 0;
  std::size_t kv_windows = 0;  ///< part of `kv` that sliding-window groups take; does not grow with the context
  std::size_t recurrent = 0;   ///< recurrent state (fixed size per slot)
  std::size_t staging = 0;     ///< staging buffer, used only while weights are loaded
  std::size_t io = 0;          ///< step inputs and logits
  [[nodiscard]] std::size_t total() const { return weights + arena + kv + recurrent + staging + io; }
};

/// Cost of opening a program: reading and repacking the weights, and on GPUs also loading kernels, allocating memory
/// and recording graphs.
struct LoadReport {
  std::uint64_t bytes = 0;         ///< read from the model file
  std::uint64_t mapped_bytes = 0;  ///< of repacked weights mapped from the cache; the model file is not read then
  // Seconds spent on the weights, then on each GPU part.
  double seconds = 0;
  double kernels_seconds = 0, memory_seconds = 0, graphs_seconds = 0;
};

/// Accumulated profile of one step of a variant. `weight_bytes`, `activation_bytes` and `flops` describe one call with
/// all rows of the variant's bounds; `filled` scales them to what was really computed. String views live as long as the
/// executor.
struct StepProfile {
  std::string_view variant, label, kernel;
  std::int32_t layer = -1;
  std::uint64_t calls = 0, nanoseconds = 0;
  double filled = 0;                  ///< sum over calls of (real rows / rows of the variant's bounds)
  double kv_bytes = 0, kv_flops = 0;  ///< attention on CPUs: total over all calls, by the positions read
  std::int64_t weight_bytes = 0, activation_bytes = 0, flops = 0;
};

/// The masks of a step's rows (TokenConstraint), for sampling on the device. They are asked for when the step's forward
/// pass is on its way, so the host can compute them meanwhile.
class RowMasks {
 public:
  RowMasks() = default;
  RowMasks(const RowMasks&) = delete;
  RowMasks& operator=(const RowMasks&) = delete;
  virtual ~RowMasks() = default;
  /// True if the row is sampled under a mask. Does not wait.
  [[nodiscard]] virtual bool is_masked(std::size_t row) const = 0;
  /// The mask of such a row: [ceil(vocab / 32)] u32; empty: every token may come. Waits until it is there.
  [[nodiscard]] virtual std::span<const std::uint32_t> mask(std::size_t row) = 0;
};

/// Arguments of DecodeLoop::start: B sequences, each with one token that has been sampled but not fed yet.
struct DecodeStart {
  std::span<const std::int32_t> ids, positions;  ///< [B]
  std::span<const Sampler* const> samplers;   ///< [B]; sampling parameters and the number of random draws made so far
  std::span<const std::int32_t> block_table;  ///< as StepBatch::block_table; must cover `steps_max` more positions
  std::size_t table_stride = 0;
  std::int64_t steps_max = 0;              ///< most steps that will be submitted
  std::span<const BlockCopy> copies = {};  ///< as StepBatch::copies; done before the first step
  /// [B], as in StepBatch, of the first step. Each later step reads the slot that the step before it wrote, and writes
  /// the one that it read. The slots of a sequence are its own.
  std::span<const std::int32_t> state_read = {}, state_write = {};
  /// Which rows have masks; nullptr: none. Their masks of each step are brought by DecodeLoop::sample.
  const RowMasks* masks = nullptr;
  std::uint64_t draws = 0;  ///< random draws made since `samplers` were, by steps that sampled on the device
};

/// Value that a device returns instead of a token when all logits of a row are NaN or -infinity.
inline constexpr std::int32_t kNoFiniteLogits = -2;

/// Result of a step whose tokens the device samples. tokens: [R]; a token id or kNoFiniteLogits for rows with a
/// sampler, Sampler::kNoToken for rows without one. logits: [R, vocab]; filled only for rows without a sampler. Valid
/// until the next call.
struct SampledTokens {
  std::span<const std::int32_t> tokens;
  std::span<const float> logits;
};

/// Autoregressive decoding on the device without the host in the loop. Each step feeds one token per sequence, samples
/// the next one and writes it where the following step reads its input ids:
///
///   host:    submit  submit  take(0)  submit  take(1) ...
///   device:  [forward 0|sample 0][forward 1|sample 1][forward 2 ...
///
/// The host submits steps ahead and reads the sampled tokens afterwards. Errors: kDevice when the device fails.
///
/// With masks, the sampling of a step waits for the host, and the forward passes run ahead of it. A mask depends on the
/// token before, so it is computed while the step's forward pass runs:
///
///   host:    submit  sample(0)  submit  take(0)  masks 1  sample(1)  submit  take(1)  masks 2 ...
///   device:  [forward 0          |sample 0][forward 1              |sample 1][forward 2 ...
class DecodeLoop {
 public:
  DecodeLoop() = default;
  DecodeLoop(const DecodeLoop&) = delete;
  DecodeLoop& operator=(const DecodeLoop&) = delete;
  virtual ~DecodeLoop() = default;

  /// Largest number of sequences that one loop can decode.
  [[nodiscard]] virtual std::size_t sequences_max() const = 0;
  /// True if the device can sample with these parameters (otherwise the host samples from logits).
  [[nodiscard]] virtual bool can_sample(const SamplerParams& params) const = 0;
  /// Runs one step of any kind (prefill or decode) outside of a loop and samples on the device. samplers: [R]; nullptr
  /// for a row whose logits the host needs. R is at most the number of sequences in the batch. Errors: as
  /// Executor::forward; kInternal for parameters that can_sample refuses.
  /// `masks`: of the rows; nullptr: none.
  virtual SampledTokens forward_and_sample(const StepBatch& batch, std::span<const Sampler* const> samplers,
                                           RowMasks* masks = nullptr) = 0;

  /// Starts a loop; the previous one must have been stopped. Throws Error(kInternal) for token ids or blocks that do
  /// not exist and for parameters that can_sample refuses.
  virtual void start(const DecodeStart& start) = 0;
  /// Most steps that may be in flight at once: 2, up to 4 when steps are short, 1 while the executor profiles.
  [[nodiscard]] virtual std::size_t in_flight_max() const = 0;
  /// Enqueues one more step. Does not wait. In a loop with masks without its sampling, which sample() enqueues before
  /// the next step is submitted or this one's tokens are taken.
  virtual void submit() = 0;
  /// In a loop with masks: enqueues the sampling of the step submitted last.
  virtual void sample(RowMasks& masks) = 0;
  /// Number of steps submitted whose tokens have not been taken.
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
  /// Waits for the oldest step in flight and returns its tokens [B]. Later steps keep running. Valid until the next
  /// call.
  virtual std::span<const std::int32_t> take() = 0;
  /// Ends the loop and waits for the steps in flight, whose tokens are discarded. These steps may have written KV
  /// entries at positions beyond the last taken token; the owner of the blocks must treat those positions as unwritten.
  virtual void stop() = 0;
};

/// A failure after which the same step may succeed when it is repeated. The KV pool's contents are undefined after it,
/// so callers must recompute all sequences.
class RecoverableError : public Error {
 public:
  using Error::Error;
};

/// Base class of the executors. Owns the program and the sizes derived from it; checks both in its constructor.
class Executor {
 public:
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  /// Runs one step and returns logits f32 [R, vocab], or with StepBatch::hidden the rows of the final norm f32 [R,
  /// hidden_width()]. Valid until the next call. Throws Error(kInternal) when the batch is larger than every variant or
  /// names tokens, positions or blocks that do not exist; kDevice when the device fails, as RecoverableError when a
  /// retry may succeed.
  virtual std::span<const float> forward(const StepBatch& batch) = 0;

  /// The device-side decode loop, or nullptr if the host must sample from forward()'s logits. Owned by the executor.
  [[nodiscard]] virtual DecodeLoop* decode_loop() { return nullptr; }

  /// "CPU", "NVIDIA H200".
  [[nodiscard]] virtual std::string device_name() const = 0;
  /// Host threads that compute or copy.
  [[nodiscard]] virtual std::size_t threads() const = 0;
  /// Blocks in the pool of the KV groups without a sliding window, shared by all sequences.
  [[nodiscard]] virtual std::int64_t kv_blocks() const = 0;
  [[nodiscard]] virtual const MemoryRequirements& memory_requirements() const = 0;
  [[nodiscard]] virtual LoadReport load_report() const = 0;
  /// One entry per step of each variant, in plan order. `calls` stays 0 unless ExecutorOptions::profile is set.
  [[nodiscard]] virtual std::vector<StepProfile> profile() const = 0;
  /// Number of device allocations so far. Constant after construction: steps do not allocate.
  [[nodiscard]] virtual std::uint64_t device_allocations() const { return 0; }
  /// Starts recording every forward, step and task into `trace`, which must have at least threads() threads and outlive
  /// the recording; nullptr stops it. CPU executors only; ignored by others.
  virtual void record(StepTrace*) {}
  /// Peak memory bandwidth of the device in bytes per second; 0 if unknown.
  [[nodiscard]] virtual double memory_bandwidth() const { return 0; }

  [[nodiscard]] const plan::ProgramT& program() const { return *program_; }
  /// Facts about the program's target, already checked.
  [[nodiscard]] const plan::TargetFactsT& facts() const { return *program_->facts; }
  /// Prompts of at least this many tokens are marked in StepBatch::prompt and use the target's long-prompt kernels.
  [[nodiscard]] std::size_t long_prompt() const {
    return facts().long_prompt > 0 ? static_cast<std::size_t>(facts().long_prompt) : SIZE_MAX;
  }
  [[nodiscard]] std::size_t vocab() const { return vocab_; }
  [[nodiscard]] std::size_t tokens_max() const { return tokens_max_; }  ///< tokens in one step of the largest variant
  [[nodiscard]] std::size_t rows_max() const { return rows_max_; }      ///< most rows of logits in one step
  /// Columns of a hidden row (output of the final norm); 0 if the program returns logits only.
  [[nodiscard]] std::size_t hidden_width() const { return hidden_width_; }
  [[nodiscard]] std::int64_t kv_block_tokens() const { return kv_block_tokens_; }
  /// Pool size and window of each KV group, indexed by group.
  [[nodiscard]] std::span<const KvPoolSize> kv_pool_sizes() const { return kv_rooms_; }
  /// Slots of recurrent state, each for one sequence at one position; 0 if the program has no recurrent state.
  [[nodiscard]] std::size_t state_slots() const { return state_slots_; }
  /// Pool sizes of the sliding-window groups, as KvBlockPool takes them.
  [[nodiscard]] std::vector<KvWindow::Limits> kv_windows() const;

 protected:
  /// `kv_blocks` and `state_slots` as in ExecutorOptions. Errors: kPlan when sizes or target facts are out of range, or
  /// when the program needs something that no executor supports (several devices, external embeddings).
  Executor(std::shared_ptr<const plan::ProgramT> program, std::int64_t kv_blocks, std::int64_t state_slots = 0);

  std::shared_ptr<const plan::ProgramT> program_;

 private:
  std::size_t vocab_ = 0, tokens_max_ = 0, rows_max_ = 0, hidden_width_ = 0;
  std::int64_t kv_block_tokens_ = 1;
  std::vector<KvPoolSize> kv_rooms_;
  std::size_t state_slots_ = 0;
};

}  // namespace forge::runtime
