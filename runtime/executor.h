#pragma once
// What runs a program, whatever the device: the tools and the engine know nothing else of it.

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

struct ExecutorOptions {
  std::size_t threads = 0;                       ///< of the host; 0: what the process may use
  std::int64_t kv_blocks = 0;                    ///< of context, for all sequences; 0: context x batch of the plan
  bool profile = false;                          ///< measure each step
  const PackedWeightsOptions* packed = nullptr;  ///< CPU: where packed weights are kept; nullptr: nowhere
};

/// Bytes of each of an executor's blocks on its device: known before anything is loaded.
struct MemoryNeed {
  std::size_t weights = 0, arena = 0, kv = 0;
  std::size_t kv_windows = 0;  ///< of `kv`, in groups with a window: the same for every longer context
  std::size_t recurrent = 0;   ///< state of a fixed size a sequence
  std::size_t staging = 0;     ///< while weights are loaded
  std::size_t io = 0;          ///< step inputs and logits
  [[nodiscard]] std::size_t total() const { return weights + arena + kv + recurrent + staging + io; }
};

/// What opening took: the weights, and around them a GPU's kernels, memory and graphs.
struct LoadReport {
  std::uint64_t bytes = 0;         ///< of the model file
  std::uint64_t mapped_bytes = 0;  ///< of weights that were packed before: then nothing of the file was read
  double seconds = 0;
  double kernels_seconds = 0, memory_seconds = 0, graphs_seconds = 0;
};

/// What one step of a variant took so far; bytes and FLOPs are those of one call with all rows that the variant can
/// have. Views live as long as the executor.
struct StepProfile {
  std::string_view variant, label, kernel;
  std::int32_t layer = -1;
  std::uint64_t calls = 0, nanoseconds = 0;
  double filled = 0;                  ///< calls, each counted by its share of real rows among the variant's
  double kv_bytes = 0, kv_flops = 0;  ///< of attention on CPUs: of all calls, by the positions that were seen
  std::int64_t weight_bytes = 0, activation_bytes = 0, flops = 0;
};

/// How a decode loop begins: B sequences, each with a token that has been chosen and not been fed.
struct DecodeStart {
  std::span<const std::int32_t> ids, positions;  ///< [B]
  std::span<const Sampler* const> samplers;      ///< [B]; how tokens are drawn, and how many random numbers have been
  std::span<const std::int32_t> block_table;     ///< as StepBatch's, as far as `steps_max` steps reach
  std::size_t table_stride = 0;
  std::int64_t steps_max = 0;              ///< that will be submitted
  std::span<const BlockCopy> copies = {};  ///< as StepBatch's, before the first step
};

/// What a device gives in place of a token for a row whose logits are all NaN or -infinity.
inline constexpr std::int32_t kNoNumbers = -2;

/// What a step gives when the device chooses: a token [R] or kNoNumbers for each row with a sampler, kNoToken for the
/// others, whose logits are in `logits` [R, vocab] instead. Valid until the next call.
struct ChosenTokens {
  std::span<const std::int32_t> tokens;
  std::span<const float> logits;
};

/// Decoding on the device: each step feeds a token of every sequence, chooses the next and leaves it where the next
/// step reads it. The host only submits steps, and reads the tokens behind them. Errors: kDevice when the device fails.
class DecodeLoop {
 public:
  DecodeLoop() = default;
  DecodeLoop(const DecodeLoop&) = delete;
  DecodeLoop& operator=(const DecodeLoop&) = delete;
  virtual ~DecodeLoop() = default;

  /// Sequences that one loop can feed.
  [[nodiscard]] virtual std::size_t sequences_max() const = 0;
  /// Can the device draw tokens this way?
  [[nodiscard]] virtual bool can_sample(const SamplerParams& params) const = 0;
  /// One step outside of a loop, of any kind. samplers: [R]; nullptr where the host needs the row's logits. At most as
  /// many rows as the batch has sequences. Errors: as Executor::forward; kInternal for what cannot be sampled.
  virtual ChosenTokens forward_and_choose(const StepBatch& batch, std::span<const Sampler* const> samplers) = 0;

  /// Begins; the previous loop has been stopped. Throws Error(kInternal) for what does not exist or cannot be sampled.
  virtual void start(const DecodeStart& start) = 0;
  /// Steps that may be in flight at once: 2, a few more of short ones, and 1 while the executor profiles.
  [[nodiscard]] virtual std::size_t in_flight_max() const = 0;
  /// Puts one step behind those that run. Does not wait.
  virtual void submit() = 0;
  /// Steps submitted whose tokens have not been taken.
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
  /// The tokens [B] that the oldest step in flight chose: waits for that step alone. Valid until the next call.
  virtual std::span<const std::int32_t> take() = 0;
  /// Ends the loop and waits for what is in flight; its tokens are lost. Positions beyond those of taken tokens may
  /// have been written: whoever owns the blocks forgets them.
  virtual void stop() = 0;
};

/// A failure after which the same step may succeed: whoever runs steps may try it again. Nothing in the KV pool is to
/// be trusted then.
class RecoverableError : public Error {
 public:
  using Error::Error;
};

class Executor {
 public:
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  /// Runs one step; returns logits [R, vocab], or the final norm's rows [R, hidden_width()] where the batch wants
  /// those, valid until the next call. Throws Error(kInternal) when the batch exceeds every variant or names tokens,
  /// positions or blocks that do not exist, kDevice when the device fails (a RecoverableError when it may work the next
  /// time).
  virtual std::span<const float> forward(const StepBatch& batch) = 0;

  /// Decoding without the host, or nullptr: then tokens are chosen from forward's logits.
  [[nodiscard]] virtual DecodeLoop* decode_loop() { return nullptr; }

  /// "CPU", "NVIDIA H200".
  [[nodiscard]] virtual std::string device_name() const = 0;
  /// Threads of the host that compute or copy.
  [[nodiscard]] virtual std::size_t threads() const = 0;
  /// Blocks of context that all sequences have together: the pool of groups without a window.
  [[nodiscard]] virtual std::int64_t kv_blocks() const = 0;
  [[nodiscard]] virtual const MemoryNeed& memory_need() const = 0;
  [[nodiscard]] virtual LoadReport load_report() const = 0;
  /// Steps of all variants in order; no calls unless ExecutorOptions::profile.
  [[nodiscard]] virtual std::vector<StepProfile> profile() const = 0;
  /// Allocations of device memory so far; none after the executor has been made.
  [[nodiscard]] virtual std::uint64_t device_allocations() const { return 0; }
  /// Records every forward, step and chunk from now on; `trace` has as many threads as this and lives as long. nullptr
  /// ends it. Executors on the host do; to others it means nothing.
  virtual void record(StepTrace*) {}
  /// Bytes a second that the device's memory gives at most; 0: not known.
  [[nodiscard]] virtual double memory_bandwidth() const { return 0; }

  [[nodiscard]] const plan::ProgramT& program() const { return *program_; }
  /// Of the program's target, checked.
  [[nodiscard]] const plan::TargetFactsT& facts() const { return *program_->facts; }
  /// Tokens of a prompt from which on they are marked as such in a step (StepBatch::prompt).
  [[nodiscard]] std::size_t long_prompt() const {
    return facts().long_prompt > 0 ? static_cast<std::size_t>(facts().long_prompt) : SIZE_MAX;
  }
  [[nodiscard]] std::size_t vocab() const { return vocab_; }
  [[nodiscard]] std::size_t tokens_max() const { return tokens_max_; }  ///< of the largest variant
  [[nodiscard]] std::size_t rows_max() const { return rows_max_; }      ///< rows of logits one step can give
  /// Columns of the final norm's rows; 0: the program gives logits alone.
  [[nodiscard]] std::size_t hidden_width() const { return hidden_width_; }
  [[nodiscard]] std::int64_t kv_block_tokens() const { return kv_block_tokens_; }
  /// The pools of the program's KV groups.
  [[nodiscard]] std::span<const KvRoom> kv_rooms() const { return kv_rooms_; }
  /// Those of groups with a window, for a block pool.
  [[nodiscard]] std::vector<KvWindow::Limits> kv_windows() const;

 protected:
  /// `kv_blocks` as in ExecutorOptions. Errors: kPlan when the program's sizes, or what it says of its target, are
  /// absurd.
  Executor(std::shared_ptr<const plan::ProgramT> program, std::int64_t kv_blocks);

  std::shared_ptr<const plan::ProgramT> program_;

 private:
  std::size_t vocab_ = 0, tokens_max_ = 0, rows_max_ = 0, hidden_width_ = 0;
  std::int64_t kv_block_tokens_ = 1;
  std::vector<KvRoom> kv_rooms_;
};

}  // namespace forge::runtime
