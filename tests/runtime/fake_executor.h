#pragma once
// An executor without matrix arithmetic, for tests of the engine.
// The KV pool holds one number for each position: a hash of all tokens up to that position. Like a model's attention, a
// step reads the previous number through the block table. A wrong block table, an overwritten block, a missing block
// copy or a wrong prefix match therefore changes the generated tokens.
// With `window` there is a second KV group with a sliding window; its positions must hold the same numbers as far back
// as the window reaches. With `chooses` the executor also has a decode loop, whose steps run as soon as they are
// submitted, as on a device with an in-order stream. With `state_slots` it has recurrent state: a slot holds the same
// number as the last position's, and a step reads and writes it through the slots of its batch; `kv` false leaves no KV
// group, as in a model without attention. With `encoder` it has no logits and no cache: all tokens of a sequence must
// be in one step, and each row depends on all of them. After an injected fault the contents of all pools are undefined.

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "runtime/executor.h"

namespace forge::test {

/// Sizes of the fake device. `state_slots` > 0 adds recurrent state; `kv` false needs it. `window` > 0 adds a KV group
/// with a sliding window of so many positions; `chooses` adds a decode loop with device sampling.
struct FakeShape {
  std::size_t vocab = 16, step_tokens = 16, sequences = 4, context = 48, block_tokens = 4, blocks = 24, window = 0;
  std::size_t state_slots = 0, threads = 1;
  bool chooses = false, kv = true, encoder = false;
};

class FakeExecutor final : public runtime::Executor, private runtime::DecodeLoop {
 public:
  explicit FakeExecutor(const FakeShape& shape);

  /// kRecoverable and kFatal are reported as device errors, kForeign as an exception that is no forge::Error.
  enum class Fault : std::uint8_t { kNone, kRecoverable, kFatal, kForeign };
  /// Fault that the next step reports.
  Fault next_fault = Fault::kNone;
  std::int32_t no_numbers_from = INT32_MAX;  ///< logits of this position and all later ones are NaN
  /// The token that is by far the most probable after the one at a position; unset, or a negative one: none is.
  std::function<std::int32_t(std::int32_t position)> script;
  /// Called at the start of each step, before the step reads or writes anything.
  std::function<void()> in_step;
  std::uint64_t steps = 0;
  std::uint64_t loops = 0;  ///< number of decode loops that were started
  std::uint64_t fed = 0;    ///< number of tokens computed

  /// Logits [vocab] of the token after `ids`, computed from the tokens alone, without the KV pool.
  [[nodiscard]] std::vector<float> logits_of(std::span<const std::int32_t> ids) const;
  /// Hidden row [kHiddenWidth] at the last position of `ids`.
  [[nodiscard]] static std::vector<float> row_of(std::span<const std::int32_t> ids);
  /// The same of an encoder, for the token at `position`.
  [[nodiscard]] static std::vector<float> encoder_row(std::span<const std::int32_t> ids, std::size_t position);
  /// Columns of a hidden row.
  static constexpr std::size_t kHiddenWidth = 3;
  /// The reference result: the tokens that a request must get, i.e. those of a run alone on a device without faults.
  [[nodiscard]] std::vector<std::int32_t> alone(std::span<const std::int32_t> prompt, runtime::SamplerParams params,
                                                std::size_t count) const;

  std::span<const float> forward(const runtime::StepBatch& batch) override;
  [[nodiscard]] runtime::DecodeLoop* decode_loop() override { return shape_.chooses ? this : nullptr; }
  [[nodiscard]] std::string device_name() const override { return "fake"; }
  [[nodiscard]] std::size_t threads() const override { return shape_.threads; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return static_cast<std::int64_t>(shape_.blocks); }
  [[nodiscard]] const runtime::MemoryRequirements& memory_requirements() const override { return need_; }
  [[nodiscard]] runtime::LoadReport load_report() const override { return {}; }
  [[nodiscard]] std::vector<runtime::StepProfile> profile() const override { return {}; }

 private:
  /// One sequence of the running decode loop.
  struct Row {
    std::int32_t id = 0, position = 0;
    runtime::Sampler sampler;
  };

  [[nodiscard]] std::size_t sequences_max() const override { return shape_.sequences; }
  [[nodiscard]] bool can_sample(const runtime::SamplerParams& params) const override;
  runtime::SampledTokens forward_and_sample(const runtime::StepBatch& batch,
                                            std::span<const runtime::Sampler* const> samplers,
                                            runtime::RowMasks* masks) override;
  void start(const runtime::DecodeStart& start) override;
  [[nodiscard]] std::size_t in_flight_max() const override { return 1 + loops % 3; }
  void submit() override;
  void sample(runtime::RowMasks& masks) override;
  [[nodiscard]] std::size_t in_flight() const override { return chosen_.size() + (unsampled_ ? 1 : 0); }
  std::span<const std::int32_t> take() override;
  void stop() override;

  std::span<const float> run(const runtime::StepBatch& batch);
  static std::int32_t choose(runtime::Sampler& sampler, std::span<const float> logits, runtime::SamplerScratch& scratch,
                             std::span<const std::uint32_t> mask = {});
  void sample_loop(runtime::RowMasks* masks);
  void copy_blocks(std::span<const runtime::BlockCopy> copies);
  void fill_logits(std::uint64_t value, float* to) const;
  void fail_if_told();

  FakeShape shape_;
  runtime::MemoryRequirements need_;
  std::vector<std::vector<std::uint64_t>> stores_;  ///< per KV group: [blocks, block_tokens]
  std::vector<std::uint64_t> states_;               ///< [state slots]
  std::vector<float> logits_;
  std::vector<std::int32_t> ids_, positions_, sequence_, rows_, kv_length_, tables_, state_read_, state_write_;
  std::vector<std::uint64_t> values_;  ///< [step_tokens], after each token of the step
  std::vector<Row> loop_rows_;         ///< empty if no loop runs
  std::vector<std::int32_t> loop_tables_;
  std::size_t loop_stride_ = 0;
  std::vector<std::uint8_t> loop_masked_;             ///< of each row; empty: no row of the loop has masks
  std::vector<float> loop_logits_;                    ///< of the step submitted last
  bool unsampled_ = false;                            ///< that step waits for sample()
  std::vector<std::int32_t> loop_read_, loop_write_;  ///< slots of recurrent state of the next step
  std::int64_t loop_steps_ = 0;                       ///< steps that may still be submitted
  std::deque<std::vector<std::int32_t>> chosen_;      ///< tokens of the steps in flight, oldest first
  std::vector<std::int32_t> taken_;
};

}  // namespace forge::test
