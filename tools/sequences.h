#pragma once
// Sequences of one executor: their KV blocks, and steps that feed tokens at their ends.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/cpu/executor.h"
#include "runtime/kv_blocks.h"

namespace forge::tools {

/// A fixed number of sequences, each of up to `context` tokens. All memory is taken when it is made. The executor
/// outlives it.
class Sequences {
 public:
  Sequences(runtime::CpuExecutor& executor, std::int64_t context, std::int64_t count);

  [[nodiscard]] std::int64_t context() const { return context_; }
  [[nodiscard]] std::size_t count() const { return sequences_.size(); }
  [[nodiscard]] std::int64_t length(std::size_t sequence) const;
  void trim(std::size_t sequence, std::int64_t length);

  /// Rows of logits as steps give them: [n, vocab], n at least 1; valid during the call only.
  using TakeRows = std::function<void(std::span<const float> rows)>;
  /// Feeds `ids` to one sequence in steps as large as the program takes, and hands on the logits of all tokens from
  /// `first_row` on. Throws Interrupted between steps. Precondition: they fit into the context.
  void prefill(std::size_t sequence, std::span<const std::int32_t> ids, std::size_t first_row, const TakeRows& take);
  /// The same for the last token alone: its logits [vocab], valid until the next step.
  std::span<const float> prefill(std::size_t sequence, std::span<const std::int32_t> ids);

  /// One token for each of the first ids.size() sequences: logits [ids.size(), vocab], valid until the next step.
  std::span<const float> decode(std::span<const std::int32_t> ids);

 private:
  void extend(std::size_t sequence, std::size_t tokens, std::size_t row);

  runtime::CpuExecutor& executor_;
  std::int64_t context_;
  std::size_t table_stride_;
  runtime::KvBlockPool pool_;
  std::vector<runtime::KvSequence> sequences_;
  std::vector<std::int32_t> positions_, sequence_, rows_, kv_length_, block_table_;
};

}  // namespace forge::tools
