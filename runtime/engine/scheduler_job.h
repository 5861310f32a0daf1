#pragma once
// The scheduler's record of a sequence. Private to scheduler.cc, plan_step.cc and steps_ahead.cc.

#include <optional>
#include <span>
#include <vector>

#include "runtime/engine/scheduler.h"

namespace forge::engine {

/// A sequence. Its token ids suffice to restart it; its KV blocks only save work.
struct Scheduler::Job {
  SequenceKey key;
  Time rank{}, deadline = kNever;
  Time delayed_until = Time::min();
  std::vector<std::int32_t> ids;  ///< prompt and generated tokens; capacity tokens_max
  std::size_t tokens_max = 0;
  std::optional<std::size_t> prompt;  ///< length of a long prompt, 0 for a short one; unset until its first step
  /// Recurrent state: positions at which a snapshot is kept; 0: none. At the end of the prompt, behind its last turn,
  /// where the prefix cache continues differently, and where another sequence waits for it.
  std::size_t prompt_end = 0, turn_end = 0, branch = 0, wanted = 0;
  std::size_t samples_to_fork = 0;  ///< further samples to be forked when the prompt has been computed
  /// Prefix tokens found at the first admission (statistics).
  std::size_t reused = 0;
  std::size_t found = 0;  ///< prefix tokens with which it started this time
  bool admitted = false;  ///< has been admitted at least once
  bool deferred = false;  ///< deferred in this step: another sequence computes a shared prefix
  OutputKind wants = OutputKind::kTokens;
  std::uint64_t extra_hash = 0;  ///< prefixes are shared only between equal hashes
  // Set while running.
  std::optional<runtime::KvSequence> kv;
  std::size_t reserved = 0;  ///< positions of `kv` reserved for later steps of the decode loop
  bool in_step = false;

  /// Tokens whose KV is computed or being computed, tokens still to compute, and slots that it occupies.
  [[nodiscard]] std::size_t fed() const { return kv ? kv->tokens() - reserved : 0; }
  [[nodiscard]] std::size_t pending() const { return ids.size() - fed(); }
  [[nodiscard]] std::size_t slots() const { return 1 + samples_to_fork; }
  [[nodiscard]] bool hidden() const { return wants != OutputKind::kTokens; }
  /// True if it has computed nothing beyond the prefix that it started with.
  [[nodiscard]] bool fresh() const { return fed() == found; }
  /// Tokens that may come from the prefix cache: all but the last, which must be computed to get a row. None for
  /// embeddings that need the rows of all tokens or of the first one.
  [[nodiscard]] std::span<const std::int32_t> reusable() const {
    return std::span(ids).first(wants == OutputKind::kMeanRow || wants == OutputKind::kFirstRow ? 0 : ids.size() - 1);
  }
};

}  // namespace forge::engine
