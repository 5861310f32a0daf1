#pragma once
// The blocks of one KV group with a sliding window, beside the pool (kv_blocks.h) that has the whole sequences. Each
// sequence maps a run of its logical blocks; those behind the window are given back. A published block of the pool may
// have a companion here, which holds the same positions: a prefix can be found again as far as the companions of its
// last window are still there. Companions without references stay, idle, until their memory is wanted.
//
// All memory is taken by the constructor. Not thread-safe. Slots and blocks of the pool are its numbers.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kv/kv_groups.h"
#include "runtime/kv/kv_idle.h"
#include "runtime/step_batch.h"

namespace forge::runtime {

class KvWindow {
 public:
  struct Limits {
    std::int32_t group = 0;  ///< of the program
    KvRoom room;
  };
  struct Shape {
    std::size_t block_tokens = 0, sequences_max = 0, table_blocks = 0, pool_blocks = 0;
  };

  /// Errors: Error(kInternal) for limits of zero.
  KvWindow(const Limits& limits, const Shape& shape);

  [[nodiscard]] std::int32_t group() const { return limits_.group; }
  [[nodiscard]] std::size_t blocks_free() const { return free_blocks_.size() + idle_.size(); }
  [[nodiscard]] std::uint32_t references(std::int32_t block) const { return entry(block).references; }
  /// Blocks of a sequence's positions; kNoBlock before those that it holds.
  [[nodiscard]] std::span<const std::int32_t> table(std::uint32_t slot) const;

  /// Whether a sequence that holds `tokens` positions could go on from there: it has what the next token sees.
  [[nodiscard]] bool reaches_back(std::uint32_t slot, std::size_t tokens) const;
  /// Fresh blocks that going on from `tokens` to `after` positions takes.
  [[nodiscard]] std::size_t blocks_to_append(std::uint32_t slot, std::size_t tokens, std::size_t after) const;
  /// Takes them; callers have counted. What to copy when the last block was not the sequence's own.
  std::optional<BlockCopy> append(std::uint32_t slot, std::size_t tokens, std::size_t after);
  /// The same for positions that are written one after the other while nobody is there to give blocks back: those
  /// behind the window come round again. The sequence shares no block. `trim` ends it.
  void append_round(std::uint32_t slot, std::size_t after);
  /// Blocks that append_round takes.
  [[nodiscard]] std::size_t blocks_to_append_round(std::uint32_t slot, std::size_t after) const;
  /// Gives back what a token at position `tokens` does not see.
  void release_behind(std::uint32_t slot, std::size_t tokens);
  /// Forgets positions from `tokens` on. Precondition: reaches_back(slot, tokens).
  void trim(std::uint32_t slot, std::size_t tokens) noexcept;
  /// `child`, which is empty, gets what `parent` holds of the first `tokens` positions. Precondition: reaches_back.
  void fork(std::uint32_t parent, std::uint32_t child, std::size_t tokens);

  /// The slot's logical block `index` holds what the pool's published `block` does.
  void publish(std::uint32_t slot, std::size_t index, std::int32_t block);
  /// Are there companions for what the token behind `prefix`, blocks of the pool, sees of it?
  [[nodiscard]] bool covers(std::span<const std::int32_t> prefix) const;
  /// `slot`, which is empty, begins with them. Precondition: covers(prefix).
  void open(std::uint32_t slot, std::span<const std::int32_t> prefix);
  /// The pool has given `block` up.
  void forget(std::int32_t block) noexcept;

  /// Throws Error(kInternal) naming the broken invariant. is_open(slot), tokens(slot): what the pool knows.
  void audit(std::span<const bool> is_open) const;

 private:
  struct Entry {
    std::uint32_t references = 0;
    std::int32_t companion_of = kNoBlock;  ///< a block of the pool
  };
  /// Logical blocks [begin, end) are mapped. `round` > 0: so many of them, from `begin` on, are different ones, and
  /// come round again.
  struct Slot {
    std::size_t begin = 0, end = 0, round = 0;
    [[nodiscard]] std::size_t held() const { return round > 0 && round < end - begin ? round : end - begin; }
  };

  [[nodiscard]] const Entry& entry(std::int32_t block) const { return entries_[static_cast<std::size_t>(block)]; }
  Entry& entry(std::int32_t block) { return entries_[static_cast<std::size_t>(block)]; }
  std::span<std::int32_t> row(std::uint32_t slot);
  [[nodiscard]] std::size_t blocks_for(std::size_t tokens) const;
  [[nodiscard]] std::size_t first_block(std::size_t position) const;
  [[nodiscard]] std::size_t round_blocks() const;
  [[nodiscard]] bool is_own(std::int32_t block) const;
  std::int32_t take();
  void share(std::int32_t block) noexcept;
  void drop(std::int32_t block) noexcept;

  Limits limits_;
  Shape shape_;
  std::vector<Entry> entries_;             ///< [blocks]
  std::vector<std::int32_t> free_blocks_;  ///< a stack
  std::vector<std::int32_t> tables_;       ///< [sequences_max, table_blocks]
  std::vector<Slot> slots_;                ///< [sequences_max]
  std::vector<std::int32_t> companions_;   ///< [pool_blocks], kNoBlock: none
  KvIdleList idle_;
};

}  // namespace forge::runtime
