#pragma once
// Sequences of one executor: their KV blocks, and steps that feed tokens at their ends. Tokens after a prompt are
// chosen by the caller from logits (decode), or by the device where the executor can (begin, next, end).

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/executor.h"
#include "runtime/kv/kv_blocks.h"

namespace forge::session {

/// A fixed number of sequences, each of up to `context` tokens. All memory is taken when it is made. The executor
/// outlives it.
class Sequences {
 public:
  Sequences(runtime::Executor& executor, std::int64_t context, std::int64_t count);

  [[nodiscard]] std::int64_t context() const { return context_; }
  [[nodiscard]] std::size_t count() const { return sequences_.size(); }
  [[nodiscard]] std::int64_t length(std::size_t sequence) const;
  /// How many tokens are left: 0 where the layers with a window no longer hold what the next token would see.
  std::int64_t trim(std::size_t sequence, std::int64_t length);

  /// Rows of logits as steps give them: [n, vocab], n at least 1; valid during the call only.
  using TakeRows = std::function<void(std::span<const float> rows)>;
  /// Feeds `ids` to one sequence in steps as large as the program takes, and hands on the logits of all tokens from
  /// `first_row` on. Throws Interrupted between steps. Precondition: they fit into the context.
  void prefill(std::size_t sequence, std::span<const std::int32_t> ids, std::size_t first_row, const TakeRows& take);
  /// The same for the last token alone: its logits [vocab], valid until the next step.
  std::span<const float> prefill(std::size_t sequence, std::span<const std::int32_t> ids);

  /// One token for each of the first ids.size() sequences: logits [ids.size(), vocab], valid until the next step.
  std::span<const float> decode(std::span<const std::int32_t> ids);

  /// Can the device choose tokens of so many sequences this way?
  [[nodiscard]] bool can_sample(std::size_t sequences, const runtime::SamplerParams& params) const;
  /// Begins decoding on the device: ids[s], chosen with samplers[s] and not fed, is next in sequence s; at most `steps`
  /// steps follow. Precondition: can_sample; the steps fit into the context.
  void begin(std::span<const std::int32_t> ids, std::span<const runtime::Sampler> samplers, std::int64_t steps);
  /// One step: the tokens [ids.size()] that it chose; valid until the next call. The device may be
  /// steps ahead, as many as the executor keeps in flight.
  std::span<const std::int32_t> next();
  /// Ends it after any step; the sequences hold what was fed up to the step that was taken last.
  void end();

 private:
  /// Room for `tokens` more of a sequence, which is the step's number `row` of `rows`; ahead: written by a decode loop.
  void extend(std::size_t sequence, std::size_t tokens, std::size_t row, std::size_t rows, bool ahead = false);
  [[nodiscard]] std::span<const std::int32_t> tables(std::size_t rows) const;

  runtime::Executor& executor_;
  std::int64_t context_;
  std::size_t table_stride_;
  runtime::KvBlockPool pool_;
  std::vector<runtime::KvSequence> sequences_;
  std::vector<std::int32_t> positions_, sequence_, rows_, kv_length_, block_table_;
  std::vector<std::uint8_t> prompt_;  ///< of the step
  std::vector<const runtime::Sampler*> samplers_;
  runtime::DecodeLoop* loop_ = nullptr;  ///< between begin and end
  std::size_t loop_sequences_ = 0;
  std::int64_t loop_steps_ = 0, submitted_ = 0, taken_ = 0;
};

}  // namespace forge::session
