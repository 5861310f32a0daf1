#pragma once
// Who owns which block of a paged KV pool. Only numbers: the bytes lie in the executor's pool. A block holds
// `block_tokens` positions of one sequence, or of several that share a prefix; it returns to the pool when its last
// reference goes. Full blocks that a sequence has published can be found by their tokens (kv_prefix.h): later sequences
// begin with them (and with a copy of one of which they share the first tokens), and without references they stay,
// idle, until their memory is wanted; the longest idle goes first. A sequence lets go of its last block first, so a
// prefix outlives what continues it. KV groups with a sliding window have pools of their own (kv_window.h), which
// follow this one. Source: PagedAttention, arXiv 2309.06180.
//
// All memory is taken by the constructor. Not thread-safe: the scheduler's thread owns the pool.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kv/kv_prefix.h"
#include "runtime/kv/kv_window.h"
#include "runtime/step_batch.h"

namespace forge::runtime {

class KvBlockPool;

/// What of a prompt is in the pool already.
struct PrefixMatch {
  std::size_t blocks = 0;  ///< full ones, from the first on
  std::size_t tokens = 0;  ///< theirs, and of a block that begins as the next one does
  std::size_t idle = 0;    ///< blocks of both that count in blocks_free() until they are read again
};

struct AppendResult {
  bool ok = false;  ///< false: not enough free blocks, or longer than a sequence can be; nothing changed
  std::optional<BlockCopy> copy;
  std::span<const BlockCopy> window_copies = {};  ///< the same of groups with a window; valid until the next append
};

/// One sequence's place in the pool: a length and a table of blocks. Gives everything back when it dies. Must not
/// outlive its pool.
class KvSequence {
 public:
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;
  ~KvSequence();

  [[nodiscard]] std::size_t tokens() const;
  /// Blocks of positions 0, block_tokens, ...: a row of the executor's block table. Valid until the next change.
  [[nodiscard]] std::span<const std::int32_t> blocks() const;
  /// The same of one KV group of the program: kNoBlock where its window has let go of positions.
  [[nodiscard]] std::span<const std::int32_t> table(std::size_t group) const;

  /// Fresh blocks that append(tokens) would take.
  [[nodiscard]] std::size_t blocks_to_append(std::size_t tokens) const;
  /// Makes room for `tokens` more positions, all or nothing. When the last block is half full and others read it or
  /// can find it, this sequence gets a block of its own and the answer says what to copy into it.
  [[nodiscard]] AppendResult append(std::size_t tokens);
  /// append for positions that are written one after the other while nobody can give blocks back (a decode loop on the
  /// device), until trim: a window's blocks come round. Precondition: the sequence shares no block with others.
  [[nodiscard]] bool append_round(std::size_t tokens);
  /// Forgets all positions from `tokens` on (rejected drafts, a stop string), or all of them where a window has let go
  /// of what the next token would see. How many are left. More than there are: nothing happens.
  std::size_t trim(std::size_t tokens);
  /// Gives back what the next token does not see of groups with a window. After a step.
  void release_behind();

  /// The first ids.size() positions have been written and hold `ids`: full blocks among them can be found from now on.
  /// Where the same prefix was published before, this sequence goes on with that block and lets go of its own, so call
  /// it while no step is in flight. More ids than tokens(): Error(kInternal).
  void publish(std::span<const std::int32_t> ids);

  /// Another sequence with the first `tokens` positions of this one (at most tokens()), sharing their blocks; an empty
  /// one where a window has let go of what the next token would see.
  /// Nothing when sequences_max are open.
  [[nodiscard]] std::optional<KvSequence> fork(std::size_t tokens) const;

 private:
  friend class KvBlockPool;
  [[nodiscard]] bool reaches_back(std::size_t tokens) const;
  KvSequence(KvBlockPool& pool, std::uint32_t slot) : pool_(&pool), slot_(slot) {}

  KvBlockPool* pool_ = nullptr;
  std::uint32_t slot_ = 0;
};

class KvBlockPool {
 public:
  struct Limits {
    std::size_t blocks = 0;
    std::size_t block_tokens = 0;
    std::size_t sequences_max = 0;
    std::size_t tokens_max = 0;  ///< of one sequence: the context
    std::uint32_t group = 0;     ///< the KV group whose tables these are; prefixes of different groups differ
    std::vector<KvWindow::Limits> windows = {};  ///< the groups with a window
    std::size_t least_beginning = 4;             ///< tokens of a block for which a sequence begins with its copy
  };

  /// Errors: Error(kInternal) for limits of zero or beyond 31 bits.
  explicit KvBlockPool(const Limits& limits);
  KvBlockPool(const KvBlockPool&) = delete;
  KvBlockPool& operator=(const KvBlockPool&) = delete;

  [[nodiscard]] const Limits& limits() const { return limits_; }
  /// Blocks that sequences can take: those that hold nothing, and idle ones.
  [[nodiscard]] std::size_t blocks_free() const { return free_blocks_.size() + prefixes_.idle(); }
  /// Of these, blocks that hold a prefix which nobody reads now.
  [[nodiscard]] std::size_t blocks_idle() const { return prefixes_.idle(); }
  /// Idle blocks that were given up so far.
  [[nodiscard]] std::uint64_t evictions() const { return evictions_; }
  [[nodiscard]] std::size_t sequences_free() const { return free_slots_.size(); }
  [[nodiscard]] std::uint32_t references(std::int32_t block) const;

  /// The longest run of published blocks that hold the beginning of `ids`, and, where no group has a window, what a
  /// block behind them has of the next one: its first tokens, if those are limits().least_beginning or more and the
  /// pool has room for all of `ids` beside it. Only blocks of sequences with the same extra hash are found.
  [[nodiscard]] PrefixMatch match(std::span<const std::int32_t> ids, std::uint64_t extra_hash = 0) const;
  /// A sequence that begins with match(ids, extra_hash): tokens() says how many of the ids need not be fed. The block
  /// of which it has a part is copied by the first append. Nothing when sequences_max are open.
  [[nodiscard]] std::optional<KvSequence> open(std::span<const std::int32_t> ids = {}, std::uint64_t extra_hash = 0);
  /// Forgets every prefix that nobody reads: what lies in the pool's memory is no longer trusted.
  void drop_idle();

  /// For holders outside sequences: one more reference to a block in use, or one less.
  void retain(std::int32_t block);
  void release(std::int32_t block);

  /// Recounts everything: references outside of sequences are given as blocks, one entry a reference.
  /// Errors: Error(kInternal) naming the broken invariant. Takes time and memory; for tests and debugging.
  void audit(std::span<const std::int32_t> held_outside = {}) const;

 private:
  friend class KvSequence;
  struct Slot {
    std::size_t tokens = 0;
    std::size_t blocks = 0;
    std::size_t published = 0;  ///< blocks that the index holds, from the first on
    std::uint64_t extra_hash = 0;
    bool open = false;
  };

  std::int32_t take();
  std::int32_t evict();
  void share(std::int32_t block);
  std::optional<std::uint32_t> open_slot();
  std::span<std::int32_t> table(std::uint32_t slot);
  std::span<const std::int32_t> table(std::uint32_t slot) const;
  std::size_t blocks_for(std::size_t tokens) const;
  struct Prefix {
    std::span<const std::int32_t> blocks;  ///< valid until the next call
    KvPrefixIndex::Beginning next = {};
    std::size_t idle = 0;  ///< of all these
  };
  Prefix prefix_of(std::span<const std::int32_t> ids, std::uint64_t extra_hash) const;
  bool must_copy(const Slot& slot, std::uint32_t index, std::size_t tokens) const;
  void drop(std::int32_t block) noexcept;
  void close(std::uint32_t slot) noexcept;

  Limits limits_;
  std::size_t table_blocks_ = 0;
  std::vector<std::uint32_t> references_;  ///< [blocks]
  std::vector<std::int32_t> free_blocks_;  ///< a stack
  std::vector<std::int32_t> tables_;       ///< [sequences_max, table_blocks_]
  std::vector<Slot> slots_;                ///< [sequences_max]
  std::vector<std::uint32_t> free_slots_;  ///< a stack
  KvPrefixIndex prefixes_;
  std::vector<KvWindow> windows_;
  std::vector<BlockCopy> window_copies_;     ///< of the last append
  mutable std::vector<std::int32_t> found_;  ///< [table_blocks_], of the last prefix that was looked for
  std::uint64_t evictions_ = 0;
  std::uint64_t dropped_twice_ = 0;  ///< always 0: a handle that dies cannot throw, so audit tells of it
};

}  // namespace forge::runtime
