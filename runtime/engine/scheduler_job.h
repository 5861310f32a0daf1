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
  std::size_t to_part = 0;  ///< samples that will leave this one when the prompt has been fed
  std::size_t reused = 0;
  bool admitted = false;  ///< at any time
  std::optional<runtime::KvSequence> kv;
  bool in_step = false;

  [[nodiscard]] std::size_t fed() const { return kv ? kv->tokens() : 0; }
  [[nodiscard]] std::size_t pending() const { return ids.size() - fed(); }
  [[nodiscard]] std::size_t slots() const { return 1 + to_part; }
  /// What may be looked for in the pool: one token at least is fed, for its logits.
  [[nodiscard]] std::span<const std::int32_t> reusable() const { return std::span(ids).first(ids.size() - 1); }
};

}  // namespace forge::engine
