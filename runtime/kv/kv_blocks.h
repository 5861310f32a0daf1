#pragma once
// Block management of the paged KV cache (source: PagedAttention, arXiv 2309.06180). Used by the engine's scheduler.
// This file handles block numbers only; the KV data is in the executor's memory.
//
// A block holds `block_tokens` consecutive positions of one sequence, in all layers of a KV group. Each sequence has a
// table of blocks:
//
//   sequence A   positions 0..31 | 32..63 | 64..79            tables:  A  [ 4, 7, 2 ]
//   sequence B   positions 0..31 | 32..63 | 64..70                     B  [ 4, 7, 9 ]     4 and 7 are shared
//
// States of a block:
//
//             take()                       last reference dropped
//    free ------------> in use (refs > 0) ------------------------> free, if it is not in the prefix index
//     ^                   ^        |
//     |                   | match  | last reference dropped, block is in the index
//     |  evict (LRU)      |        v
//     +------------------ idle (refs 0, still findable by its tokens)
//
// Prefix cache: full blocks that a sequence has published are found by their tokens (kv_prefix.h), and where it ended,
// its last one too. A new sequence starts with the blocks that match its prompt, and with a copy of one more block if
// that matches partly; the last block of a sequence that has ended is continued in place if no other one uses it. Idle
// blocks stay findable until their memory is needed; the least recently used goes first. A sequence releases its last
// block first, so a prefix is evicted after what continues it.
//
// Copy on write: blocks that are shared or in the index are never written. append() replaces such a last block by a new
// one and returns the copy that the executor must make; one that it can continue leaves the index.
//
// KV groups with a sliding window have pools of their own (kv_window.h), which follow this one.
//
// Recurrent state (state_slots.h): a prefix can be reused only where a snapshot of the state was kept (keep_state), so
// a new sequence starts at the deepest snapshot that matches, and trim and fork fall back to one. A snapshot inside of
// a block needs that block's contents; if nothing else refers to the block, it is idle like one of the index.
//
// All memory is allocated by the constructor. Not thread-safe: the scheduler's thread owns the pool.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kv/kv_prefix.h"
#include "runtime/kv/kv_window.h"
#include "runtime/kv/state_slots.h"
#include "runtime/step_batch.h"

namespace forge::runtime {

class KvBlockPool;

/// Part of a prompt that is already in the pool.
struct PrefixMatch {
  std::size_t blocks = 0;  ///< full matching blocks from the start of the prompt
  std::size_t tokens = 0;  ///< tokens of these, plus those of a partly matching block
  std::size_t idle = 0;    ///< how many of the matching blocks are idle, i.e. still count as free
  /// Tokens of all full blocks that match. More than `tokens` if recurrent state was not kept at their end.
  std::size_t indexed = 0;
};

/// Result of KvSequence::append.
struct AppendResult {
  /// False: too few free blocks, no slot for the recurrent state, or the sequence would exceed the context; nothing was
  /// changed.
  bool ok = false;
  /// Copy that the executor must make before the next step (copy on write).
  std::optional<BlockCopy> copy;
  std::span<const BlockCopy> window_copies = {};  ///< copies in window groups; valid until the next append
};

/// RAII handle of one sequence in the pool: its length and its block table. Releases all blocks on destruction. Must
/// not outlive the pool.
class KvSequence {
 public:
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;
  ~KvSequence();

  /// Number of positions that the sequence has room for.
  [[nodiscard]] std::size_t tokens() const;
  /// Physical block of each logical block (positions 0.., block_tokens.., ...), as the executor's block table has them.
  /// Valid until the next change.
  [[nodiscard]] std::span<const std::int32_t> blocks() const;
  /// The same for one KV group of the program; kNoBlock where a sliding window has moved past the positions.
  [[nodiscard]] std::span<const std::int32_t> table(std::size_t group) const;

  /// Number of new blocks that append(tokens) would take from the pool.
  [[nodiscard]] std::size_t blocks_to_append(std::size_t tokens) const;
  /// Makes room for `tokens` more positions, all or nothing. If the last block is partly filled and shared or
  /// published, the sequence gets a new block and the result says what to copy into it.
  [[nodiscard]] AppendResult append(std::size_t tokens);
  /// False while other sequences of the same step hold all slots of recurrent state: append would fail. The first
  /// sequence of a step always has one.
  [[nodiscard]] bool has_state_to_append() const;
  /// Slots of recurrent state for the step after append: what it reads (-1: zeros) and writes. -1 without such state.
  [[nodiscard]] std::int32_t state_read() const;
  [[nodiscard]] std::int32_t state_write() const;
  /// True if a decode loop on the device may start: its first step writes the recurrent state in place and copies no
  /// block. After a snapshot, one step outside of a loop makes it so.
  [[nodiscard]] bool can_run_ahead() const;
  /// Recurrent state: a decode loop starts, whose first step follows the first `from` tokens. Call after the append of
  /// its steps and before state_write; trim ends the loop. Returns how many steps may be in flight at once, so that the
  /// state at the end that trim is told is still there: any number (SIZE_MAX) without recurrent state.
  std::size_t run_ahead(std::size_t from);
  /// append for a decode loop on the device, during which the host cannot give back blocks that leave the window:
  /// window groups reuse a ring of blocks instead (kv_window.h). Ended by trim. Precondition: the sequence shares no
  /// block.
  [[nodiscard]] bool append_ring(std::size_t tokens);
  /// Drops all positions from `tokens` on (rejected draft tokens, text after a stop string). Drops everything if a
  /// window group no longer holds what position `tokens` would see. With recurrent state it drops what is behind the
  /// last snapshot at or before `tokens`, whose tokens are then to be fed again. Returns the new length. Does nothing
  /// if `tokens` is larger than the current length.
  std::size_t trim(std::size_t tokens);
  /// Gives back blocks of window groups that the next token cannot see, and the slot of recurrent state that the step
  /// has read. Call after a step.
  void release_outside_window();

  /// Keeps the recurrent state as a snapshot, so that a prefix which ends here can be reused. `ids`: all tokens of the
  /// sequence, which have been computed; they are published. Call after a step. Returns false if nothing was kept:
  /// there is no state or no room for snapshots, or the pool has sliding windows and the last block is not full.
  /// Error(kInternal) if ids.size() != tokens().
  bool keep_state(std::span<const std::int32_t> ids);
  /// Tokens at the last snapshot that trim(tokens()) could go back to; 0 if there is none.
  [[nodiscard]] std::size_t state_kept() const;

  /// Declares that the first ids.size() positions have been computed and hold `ids`; full blocks among them enter the
  /// prefix cache. If an equal block is cached already, this sequence switches to it and releases its own, so do not
  /// call this while a step is in flight. Error(kInternal) if ids.size() > tokens().
  void publish(std::span<const std::int32_t> ids);
  /// The same for a sequence that ends with `ids` and is closed next: its last block can be found too if it is not
  /// full. With sliding windows or recurrent state it cannot (keep_state keeps the end of the latter).
  void publish_end(std::span<const std::int32_t> ids);

  /// Creates another sequence that shares the blocks of the first `tokens` positions (at most tokens()); it is empty if
  /// a window group no longer holds what the next token would see. With recurrent state it shares the state at the end,
  /// or else those up to the last snapshot before `tokens`. Returns nothing if sequences_max sequences are open.
  [[nodiscard]] std::optional<KvSequence> fork(std::size_t tokens) const;

 private:
  friend class KvBlockPool;
  /// True if every window group holds what a token at position `tokens` sees.
  [[nodiscard]] bool holds_window_at(std::size_t tokens) const;
  [[nodiscard]] std::int32_t fall_back(std::size_t& tokens) const;
  KvSequence(KvBlockPool& pool, std::uint32_t slot) : pool_(&pool), slot_(slot) {}

  KvBlockPool* pool_ = nullptr;
  std::uint32_t slot_ = 0;
};

/// The pool of blocks and the tables of all open sequences.
class KvBlockPool {
 public:
  struct Limits {
    std::size_t blocks = 0;
    std::size_t block_tokens = 0;
    std::size_t sequences_max = 0;
    std::size_t tokens_max = 0;  ///< longest sequence (context)
    std::uint32_t group = 0;     ///< KV group that this pool is for; separates the prefix hashes of different groups
    std::vector<KvWindow::Limits> windows = {};  ///< one per sliding-window group
    std::size_t min_partial_tokens = 4;          ///< smallest partial block match that is worth a copy
    StateSlots::Limits states = {};              ///< slots of recurrent state; at least sequences_max, or 0: none
  };

  /// Errors: Error(kInternal) for limits of zero or above 31 bits.
  explicit KvBlockPool(const Limits& limits);
  KvBlockPool(const KvBlockPool&) = delete;
  KvBlockPool& operator=(const KvBlockPool&) = delete;

  [[nodiscard]] const Limits& limits() const { return limits_; }
  /// Blocks that sequences can take: free ones and idle ones.
  [[nodiscard]] std::size_t blocks_free() const { return free_blocks_.size() + blocks_idle(); }
  /// Blocks that hold a cached prefix and are not in use.
  [[nodiscard]] std::size_t blocks_idle() const { return prefixes_.idle() + kept_.size(); }
  /// Idle blocks evicted so far.
  [[nodiscard]] std::uint64_t evictions() const { return evictions_; }
  [[nodiscard]] std::size_t sequences_free() const { return free_slots_.size(); }
  [[nodiscard]] std::uint32_t references(std::int32_t block) const;
  /// The slots of recurrent state; nullptr without such state.
  [[nodiscard]] const StateSlots* states() const { return states_ ? &*states_ : nullptr; }
  /// True if snapshots of recurrent state are kept.
  [[nodiscard]] bool keeps_states() const { return states_ && states_->limits().snapshots; }

  /// Looks `ids` up in the prefix cache: the longest run of published blocks from the start, plus, if no group has a
  /// window, the first tokens of one more block if at least limits().min_partial_tokens of them match and the pool has
  /// room for all of `ids` besides. With recurrent state: up to the deepest snapshot. Only blocks published under the
  /// same `extra_hash` match.
  [[nodiscard]] PrefixMatch match(std::span<const std::int32_t> ids, std::uint64_t extra_hash = 0) const;
  /// Opens a sequence that starts with match(ids, extra_hash); tokens() is the number of ids that need not be computed.
  /// A partly matching block is copied by the first append. Returns nothing if sequences_max sequences are open.
  [[nodiscard]] std::optional<KvSequence> open(std::span<const std::int32_t> ids = {}, std::uint64_t extra_hash = 0);
  /// Evicts every idle block and all snapshots, e.g. when the contents of device memory are no longer reliable.
  void evict_idle();

  /// References held outside of sequences: adds or removes one reference of a block that is in use.
  void retain(std::int32_t block);
  void release(std::int32_t block);
  /// The same for slots of recurrent state. Precondition: states() != nullptr.
  void retain_state(std::int32_t slot) { states_->retain(slot); }
  void release_state(std::int32_t slot) { states_->release(slot); }

  /// Checks all invariants by recounting. held_outside, states_outside: blocks and slots of recurrent state referenced
  /// by retain and retain_state, one entry per reference. Errors: Error(kInternal) naming the broken invariant. Slow;
  /// for tests and debugging.
  void audit(std::span<const std::int32_t> held_outside = {}, std::span<const std::int32_t> states_outside = {}) const;

 private:
  friend class KvSequence;
  struct Slot {
    std::size_t tokens = 0;
    std::size_t blocks = 0;
    std::size_t published = 0;  ///< number of leading blocks that are in the prefix index
    std::uint64_t extra_hash = 0;
    bool open = false;
    std::optional<std::size_t> loop_from;  ///< recurrent state: tokens before the decode loop that runs
  };

  std::int32_t take();
  std::int32_t evict();
  void share(std::int32_t block);
  std::optional<std::uint32_t> open_slot();
  std::span<std::int32_t> table(std::uint32_t slot);
  std::span<const std::int32_t> table(std::uint32_t slot) const;
  std::size_t blocks_for(std::size_t tokens) const;
  /// Result of a prefix lookup.
  struct Prefix {
    std::span<const std::int32_t> blocks;  ///< valid until the next call
    KvPrefixIndex::PartialMatch next = {};
    std::size_t idle = 0;                    ///< how many of all these blocks are idle
    std::int32_t state = StateSlots::kNone;  ///< the snapshot at the end
    std::size_t indexed = 0;                 ///< see PrefixMatch
  };
  Prefix prefix_of(std::span<const std::int32_t> ids, std::uint64_t extra_hash) const;
  bool with_next(Prefix& found, KvPrefixIndex::PartialMatch next, std::size_t ids) const;
  Prefix state_prefix_of(std::span<const std::int32_t> ids, std::uint64_t extra_hash,
                         std::span<const std::int32_t> blocks) const;
  std::size_t idle_of(std::span<const std::int32_t> blocks) const;
  bool windows_cover(std::span<const std::int32_t> prefix) const;
  bool must_copy(const Slot& slot, std::uint32_t index, std::size_t tokens) const;
  bool continues_tail(const Slot& slot, std::uint32_t index) const;
  /// The end of the sequence's blocks that are in the prefix index.
  KvPrefixIndex::Chain published_chain(const Slot& slot, std::uint32_t index) const;
  void drop(std::int32_t block) noexcept;
  void close(std::uint32_t slot) noexcept;
  bool must_copy_for_snapshot(const Slot& slot, std::uint32_t index, std::size_t tokens) const;
  void free_released();

  Limits limits_;
  std::size_t table_blocks_ = 0;
  std::vector<std::uint32_t> references_;  ///< [blocks]
  std::vector<std::int32_t> free_blocks_;  ///< stack
  std::vector<std::int32_t> tables_;       ///< [sequences_max, table_blocks_]
  std::vector<Slot> slots_;                ///< [sequences_max]
  std::vector<std::uint32_t> free_slots_;  ///< stack
  KvPrefixIndex prefixes_;
  std::vector<KvWindow> windows_;
  std::optional<StateSlots> states_;
  KvIdleList kept_;                        ///< blocks without references outside of the index that a snapshot needs
  std::vector<std::uint64_t> idle_since_;  ///< [blocks], if there is recurrent state; order of becoming idle
  std::uint64_t idle_clock_ = 0;
  std::vector<BlockCopy> window_copies_;     ///< of the last append
  mutable std::vector<std::int32_t> found_;  ///< [table_blocks_], result buffer of prefix_of
  std::uint64_t evictions_ = 0;
  /// Double releases; 0 unless there is a bug. Destructors cannot throw, so audit() reports it.
  std::uint64_t double_releases_ = 0;
};

}  // namespace forge::runtime
