#pragma once
// Slots of recurrent state: who owns which, and snapshots that prefixes are reused from. Used by KvBlockPool only,
// whose sequence and block numbers it takes. This file handles slot numbers only; the state is in the executor's
// memory.
//
// A slot holds the state of all recurrent layers after one position of one sequence. A step reads one slot and writes
// one (StepBatch::state_read, state_write), so nothing is ever copied:
//
//   step          reads   writes
//   tokens 0-99    -1       4      a sequence starts from zeros
//   token 100       4       4      only this sequence uses slot 4: in place
//   keep                           slot 4 becomes a snapshot at position 101
//   token 101       4       7      the snapshot stays; the sequence goes on in slot 7
//
// States of a slot:
//
//   free --append--> in use --keep--> in use, snapshot --last reference--> idle snapshot --evict (LRU)--> free
//                       \---------------------------- last reference -----------------------------------^
//
// A snapshot is found by what it is the state after: the chain of full blocks in the prefix index, and the tokens
// behind the last of them (the tail), which are compared. The KV block that holds the tail is known by number; the pool
// forgets the snapshot when that block or the last full block is evicted (forget), and does not write the positions
// that the snapshot needs (keeps_beyond). Source of prefix caching by snapshots: Marconi, arXiv 2411.19379.
//
// There are at least as many slots as sequences, so some sequence can always go on: one whose state nobody else needs
// writes in place, giving up its own snapshot if no other slot is free.
//
// A decode loop on the device runs one step ahead of the tokens that the host has seen. Its steps write two slots in
// turn (begin_loop), so that the state after the last token that counts is there when the loop ends.
//
// Speculative decoding can build on this: after keep(), a step of draft tokens leaves the snapshot as it is, and
// KvSequence::trim goes back to it. Kernels that keep the state after each of a step's last k tokens would write k
// slots in place of one; append() is where these are taken.
//
// All memory is allocated by the constructor. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kv/kv_idle.h"
#include "runtime/kv/kv_prefix.h"

namespace forge::runtime {

/// Tokens up to the last of `ends` in `prompt` that something follows, which is mostly the start of the answer: chat
/// templates may render that differently in the next turn, so a snapshot is worth keeping before it. 0 if there is
/// none. Precondition: `prompt` is not empty.
[[nodiscard]] std::size_t last_turn_end(std::span<const std::int32_t> prompt, std::span<const std::int32_t> ends);

class StateSlots {
 public:
  static constexpr std::int32_t kNone = -1;
  /// Snapshots that a sequence remembers, to go back to (nearest).
  static constexpr std::size_t kRememberedMax = 8;

  struct Limits {
    std::size_t slots = 0;  ///< 0: the program has no recurrent state
    bool snapshots = true;  ///< false: keep() does nothing
  };
  /// Sizes of the pool.
  struct Shape {
    std::size_t block_tokens = 0, sequences_max = 0, pool_blocks = 0;
  };
  /// What a snapshot is the state after.
  struct Key {
    std::uint64_t birth = 0, extra = 0;  ///< of the last full block (0: none) and of the request (KvPrefixIndex::Chain)
    std::int32_t block = kNone;          ///< the last full block
    std::size_t position = 0;            ///< number of tokens
    std::span<const std::int32_t> tail;  ///< ids behind the last full block, fewer than a block
    std::int32_t tail_block = kNone;     ///< block that holds the tail; kNone if there is none
  };

  /// Errors: Error(kInternal) for fewer slots than sequences.
  StateSlots(const Limits& limits, const Shape& shape);

  [[nodiscard]] const Limits& limits() const { return limits_; }
  /// Slots that a step can take: free ones and idle snapshots.
  [[nodiscard]] std::size_t slots_free() const { return free_.size() + idle_.size(); }
  [[nodiscard]] std::size_t snapshots() const { return snapshots_; }
  /// Totals: snapshots kept, sequences that started from one, and snapshots lost to others.
  [[nodiscard]] std::uint64_t kept() const { return stamps_; }
  [[nodiscard]] std::uint64_t hits() const { return hits_; }
  [[nodiscard]] std::uint64_t evictions() const { return evictions_; }

  /// Slots of the last append: what the sequence's step reads (kNone: zeros) and writes.
  [[nodiscard]] std::int32_t read(std::uint32_t sequence) const { return sequences_[sequence].read; }
  [[nodiscard]] std::int32_t written(std::uint32_t sequence) const {
    const auto& s = sequences_[sequence];
    return s.other == kNone ? s.current : s.other;
  }
  /// The slot of the sequence's state.
  [[nodiscard]] std::int32_t current(std::uint32_t sequence) const { return sequences_[sequence].current; }

  /// True if append can choose a slot to write.
  [[nodiscard]] bool can_append(std::uint32_t sequence) const;
  /// Chooses the slot that the sequence's next step writes. What it reads keeps a reference until release_read, so that
  /// no other sequence of the step writes it. Precondition: can_append.
  void append(std::uint32_t sequence);
  /// True if nothing else needs the slot of the sequence's state: append would write in place.
  [[nodiscard]] bool in_place(std::uint32_t sequence) const;
  /// The sequence's steps write another slot and its current one in turn from now on, the other one first. Returns
  /// false if there is none to spare, which leaves it in place. Call after an append in place.
  bool begin_loop(std::uint32_t sequence);
  /// Continues with the state after `steps` steps of the loop; at most one more has run. Does nothing without a loop.
  void end_loop(std::uint32_t sequence, std::size_t steps);
  /// The step is done.
  void release_read(std::uint32_t sequence) noexcept;
  void close(std::uint32_t sequence) noexcept;

  /// Makes the sequence's current slot a snapshot, or switches the sequence to an equal one. Returns false if the
  /// sequence has no state, or if snapshots are off.
  bool keep(std::uint32_t sequence, const Key& key);
  /// The snapshot of the most tokens, at most `tokens_max`, that `ids` begin with; kNone if there is none. `prefix`:
  /// the blocks of `index` that hold full blocks of `ids`.
  [[nodiscard]] std::int32_t deepest(const KvPrefixIndex& index, std::span<const std::int32_t> prefix,
                                     std::span<const std::int32_t> ids, std::uint64_t extra,
                                     std::size_t tokens_max) const;
  /// The newest snapshot that the sequence remembers at or before `tokens` tokens and that still exists, or kNone.
  [[nodiscard]] std::int32_t nearest(std::uint32_t sequence, std::size_t tokens) const;
  [[nodiscard]] std::size_t position(std::int32_t slot) const { return slots_[at(slot)].position; }
  [[nodiscard]] std::int32_t tail_block(std::int32_t slot) const { return slots_[at(slot)].tail_block; }

  /// Starts an empty sequence from a snapshot that deepest() found.
  void open(std::uint32_t sequence, std::int32_t snapshot);
  /// Replaces a sequence's state by a snapshot, or by zeros (kNone).
  void restore(std::uint32_t sequence, std::int32_t snapshot);
  /// Gives the empty `child` the parent's current state (from == current), one of its snapshots, or zeros (kNone).
  void fork(std::uint32_t parent, std::uint32_t child, std::int32_t from);

  /// True if a snapshot needs this block's contents and no longer finds it once it is unreferenced.
  [[nodiscard]] bool keeps(std::int32_t block) const { return kept_by_[at(block)] > 0; }
  /// True if a snapshot needs what this block holds at position `tokens` or behind it.
  [[nodiscard]] bool keeps_beyond(std::int32_t block, std::size_t tokens) const;
  /// Forgets the snapshots for which keeps_beyond is true.
  void forget_beyond(std::int32_t block, std::size_t tokens);
  /// Forgets the snapshots whose last full block or tail is in this block.
  void forget(std::int32_t block);
  void forget_all();
  /// Calls `take` with each block that no snapshot needs any more since the last call.
  template <class Take>
  void drain_released(Take take) {
    for (const auto block : released_)
      if (!keeps(block)) take(block);
    released_.clear();
  }

  /// References held outside of sequences.
  void retain(std::int32_t slot);
  void release(std::int32_t slot);

  /// Checks all invariants by recounting. is_open: [sequences_max]; held_outside: one entry per reference of retain.
  /// Throws Error(kInternal) naming the broken invariant.
  void audit(const KvPrefixIndex& index, std::span<const bool> is_open,
             std::span<const std::int32_t> held_outside) const;

 private:
  struct Slot {
    std::uint32_t references = 0;
    std::uint64_t stamp = 0;  ///< number of the snapshot, never used again; 0: not a snapshot
    std::uint64_t birth = 0, extra = 0;
    std::int32_t block = kNone, tail_block = kNone;
    std::size_t position = 0;
  };
  struct Remembered {
    std::int32_t slot = kNone;
    std::uint64_t stamp = 0;
    std::size_t position = 0;
  };
  struct Sequence {
    std::int32_t current = kNone, read = kNone;
    std::int32_t held = kNone;   ///< the slot that is read, where it is not the current one; has a reference
    std::int32_t other = kNone;  ///< in a decode loop: the second slot; has a reference
    std::size_t remembered = 0;  ///< entries in use
  };
  [[nodiscard]] static std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }
  [[nodiscard]] std::span<std::int32_t> tail(std::int32_t slot);
  [[nodiscard]] std::span<const std::int32_t> tail(std::int32_t slot) const;
  [[nodiscard]] std::span<Remembered> remembered(std::uint32_t sequence);
  [[nodiscard]] std::span<const Remembered> remembered(std::uint32_t sequence) const;
  [[nodiscard]] bool alone(std::int32_t slot) const { return slot != kNone && slots_[at(slot)].references == 1; }
  [[nodiscard]] std::int32_t find(const Key& key) const;
  std::int32_t take();
  void share(std::int32_t slot) noexcept;
  void drop(std::int32_t slot) noexcept;
  void forget_snapshot(std::int32_t slot);
  void remember(std::uint32_t sequence, std::int32_t slot);

  Limits limits_;
  std::size_t block_tokens_;
  std::vector<Slot> slots_;             ///< [slots]
  std::vector<std::int32_t> tails_;     ///< [slots, block_tokens]
  std::vector<std::int32_t> free_;      ///< stack
  KvIdleList idle_;                     ///< snapshots without references
  std::vector<Sequence> sequences_;     ///< [sequences_max]
  std::vector<Remembered> remembered_;  ///< [sequences_max, kRememberedMax], oldest first
  std::vector<std::uint32_t> kept_by_;  ///< [pool_blocks], snapshots whose tail is in the block
  std::vector<std::int32_t> released_;  ///< blocks whose kept_by_ became 0
  std::size_t snapshots_ = 0;
  std::uint64_t stamps_ = 0, hits_ = 0, evictions_ = 0;
  std::uint64_t double_releases_ = 0;  ///< reported by audit(), because destructors cannot throw
};

}  // namespace forge::runtime
