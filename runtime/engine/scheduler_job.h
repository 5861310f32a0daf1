#pragma once
// What the scheduler keeps of a sequence; for its own files.

#include <optional>
#include <span>
#include <vector>

#include "runtime/engine/scheduler.h"

namespace forge::engine {

/// A sequence. Its tokens are all that is needed to begin it anew; what lies in the pool is only saved work.
struct Scheduler::Job {
  SequenceKey key;
  Time rank{}, deadline = kNever;
  Time delayed_until = Time::min();
  std::vector<std::int32_t> ids;  ///< prompt and what has been generated; capacity tokens_max
  std::size_t tokens_max = 0;
  std::optional<std::size_t> prompt;  ///< tokens that are fed as a prompt's; from its first part on
  std::size_t to_part = 0;            ///< samples that will leave this one when the prompt has been fed
  std::size_t reused = 0;
  std::size_t found = 0;  ///< tokens that it began with, of the pool
  bool admitted = false;  ///< at any time
  bool held = false;      ///< in this step, for one before it that feeds what both begin with
  Wants wants = Wants::kTokens;
  std::uint64_t extra_hash = 0;  ///< its prefix is shared with jobs of the same one
  std::optional<runtime::KvSequence> kv;
  std::size_t reserved = 0;  ///< positions of `kv` for steps to come
  bool in_step = false;

  [[nodiscard]] std::size_t fed() const { return kv ? kv->tokens() - reserved : 0; }
  [[nodiscard]] std::size_t pending() const { return ids.size() - fed(); }
  [[nodiscard]] std::size_t slots() const { return 1 + to_part; }
  [[nodiscard]] bool hidden() const { return wants != Wants::kTokens; }
  /// Has it nothing but what it began with?
  [[nodiscard]] bool fresh() const { return fed() == found; }
  /// What may be looked for in the pool: one token at least is fed, for its row.
  [[nodiscard]] std::span<const std::int32_t> reusable() const {
    return std::span(ids).first(wants == Wants::kMeanRow ? 0 : ids.size() - 1);
  }
};

}  // namespace forge::engine
