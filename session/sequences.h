#pragma once
// A fixed number of sequences on one executor, with their KV blocks, for the tools that need no scheduler (forge-run,
// forge-bench, tests). After prefill, tokens are generated in one of two ways:
//
//   decode(ids)           one step; returns logits, and the caller samples on the host
//   begin, next..., end   a decode loop on the device, which samples there and feeds each token itself

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/executor.h"
#include "runtime/kv/kv_blocks.h"

namespace forge::session {

/// `count` sequences of up to `context` tokens each. All memory is allocated by the constructor. The executor must
/// outlive it.
class Sequences {
 public:
  Sequences(runtime::Executor& executor, std::int64_t context, std::int64_t count);

  [[nodiscard]] std::int64_t context() const { return context_; }
  [[nodiscard]] std::size_t count() const { return sequences_.size(); }
  [[nodiscard]] std::int64_t length(std::size_t sequence) const;
  /// Cuts the sequence to its first `length` tokens. Returns its new length: `length`, or 0 if layers with a sliding
  /// window have already released positions that the next token would see. With recurrent state it is the length at the
  /// last snapshot before, or 0.
  std::int64_t trim(std::size_t sequence, std::int64_t length);
  /// Recurrent state with slots for snapshots (keep_state, keep_at, resume).
  [[nodiscard]] bool keeps_states() const { return pool_.keeps_states(); }
  /// Keeps the state at the sequence's end. Does nothing without slots for snapshots.
  void keep_state(std::size_t sequence);
  /// The next prefill of the sequence keeps the state at this length, too.
  void keep_at(std::size_t sequence, std::int64_t length);
  /// Replaces the sequence by the longest prefix of `ids` for which there is a snapshot, and returns its length.
  /// Precondition: keeps_states().
  std::int64_t resume(std::size_t sequence, std::span<const std::int32_t> ids);
  /// Empties the sequence and forgets all snapshots, after a failed step.
  void forget(std::size_t sequence);

  /// Receives the logits of one step: [n, vocab], n at least 1; valid during the call only.
  using TakeRows = std::function<void(std::span<const float> rows)>;
  /// Feeds `ids` to one sequence in steps as large as the program allows, and calls `take` with the logits of the
  /// tokens ids[first_row...]. Throws Interrupted between steps. Precondition: `ids` fit into the context.
  void prefill(std::size_t sequence, std::span<const std::int32_t> ids, std::size_t first_row, const TakeRows& take);
  /// The same, returning the logits of the last token: [vocab], valid until the next step.
  std::span<const float> prefill(std::size_t sequence, std::span<const std::int32_t> ids);

  /// Columns of a hidden row; 0 if the program returns logits only.
  [[nodiscard]] std::size_t hidden_width() const { return executor_.hidden_width(); }
  /// Feeds `ids` to one sequence and calls `take` with the hidden rows [n, hidden_width] of all of them, in order. The
  /// tokens are in one step if the program is an encoder's. Errors: kUsage if the program returns no hidden rows.
  void hidden_rows(std::size_t sequence, std::span<const std::int32_t> ids, const TakeRows& take);

  /// Feeds ids[s] to sequence s, one token to each of the first ids.size() sequences. Returns logits
  /// [ids.size(), vocab], valid until the next step.
  std::span<const float> decode(std::span<const std::int32_t> ids);

  /// True if the device can sample that many sequences with these parameters.
  [[nodiscard]] bool can_sample(std::size_t sequences, const runtime::SamplerParams& params) const;
  /// Starts generating on the device, at most `steps` steps. ids[s] is the first token to feed to sequence s; it
  /// was sampled with samplers[s] from the prefill's logits. Precondition: can_sample; the steps fit into the context.
  void begin(std::span<const std::int32_t> ids, std::span<const runtime::Sampler> samplers, std::int64_t steps);
  /// Waits for the next step and returns the tokens it sampled: [ids.size()], valid until the next call. The device
  /// meanwhile runs further steps, up to the number that the executor keeps in flight.
  std::span<const std::int32_t> next();
  /// Ends the loop. The sequences are cut to the tokens fed up to the last step that next() returned; steps in flight
  /// after it are discarded.
  void end();

 private:
  /// Feeds up to `tokens_max` of `ids` a step and asks for the rows of tokens ids[first_row...], at most `rows_max` a
  /// step.
  struct FeedLimits {
    std::size_t first_row = 0, tokens_max = 0, rows_max = 0;
    bool hidden = false;
  };
  void feed(std::size_t sequence, std::span<const std::int32_t> ids, const FeedLimits& limits, const TakeRows& take);
  /// Allocates KV blocks for `tokens` more tokens of `sequence` and writes its block tables and length as entry `row`
  /// of the `rows` sequences of the step. `ahead`: for all steps of a decode loop at once.
  void extend(std::size_t sequence, std::size_t tokens, std::size_t row, std::size_t rows, bool ahead = false);
  void take_ids(std::size_t sequence, std::span<const std::int32_t> ids);
  [[nodiscard]] runtime::StepBatch decode_batch(std::span<const std::int32_t> ids);
  void start_loop();
  [[nodiscard]] std::span<const std::int32_t> tables(std::size_t rows) const;
  [[nodiscard]] bool has_state() const { return executor_.state_slots() > 0; }
  /// The first `rows` slots, or none if the model has no recurrent state.
  [[nodiscard]] std::span<const std::int32_t> slots(std::span<const std::int32_t> of, std::size_t rows) const {
    return has_state() ? of.first(rows) : std::span<const std::int32_t>();
  }

  runtime::Executor& executor_;
  std::int64_t context_;
  std::size_t table_stride_;
  runtime::KvBlockPool pool_;
  std::vector<runtime::KvSequence> sequences_;
  std::vector<std::vector<std::int32_t>> ids_;  ///< with snapshots: the tokens of each sequence
  std::vector<std::int64_t> keep_at_;
  std::vector<runtime::BlockCopy> copies_;  ///< before the next step
  std::vector<std::int32_t> positions_, sequence_, rows_, kv_length_, block_table_, state_read_, state_write_;
  std::vector<std::uint8_t> prompt_;  ///< per token of the step: 1 if it belongs to a long prompt
  std::vector<const runtime::Sampler*> samplers_;
  runtime::DecodeLoop* loop_ = nullptr;  ///< set between begin() and end()
  std::size_t loop_sequences_ = 0;
  bool loop_runs_ = false;                   ///< the executor's loop has been started
  std::int64_t loop_steps_ = 0, taken_ = 0;  ///< steps announced, and returned
  std::int64_t alone_ = 0;                   ///< 1 if the first of these steps runs before the loop, else 0
  std::size_t in_flight_max_ = 0;            ///< for the sake of recurrent state (KvSequence::run_ahead)
  std::vector<std::int32_t> next_ids_;       ///< what each sequence's next step feeds
};

}  // namespace forge::session
