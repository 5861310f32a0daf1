#pragma once
// Blocks of one KV group with a sliding window. It follows the main pool (kv_blocks.h), which holds whole sequences:
// same slots, same logical blocks, but a sequence holds only the blocks that its window reaches:
//
//   logical block     0    1    2    3    4
//   main pool         4    7    2    6    9        grows with the context
//   this group        -    -    5    0    3        blocks in front of the window are given back after each step
//
// Prefix cache: when the main pool publishes a block, the block of this group with the same positions becomes its
// companion. A prefix can be reused if the companions that its last window needs still exist. Unreferenced companions
// are idle and stay until their memory is needed.
//
// All memory is allocated by the constructor. Not thread-safe. `slot` and `block` of the main pool are the pool's
// numbers.

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
  /// Which group, and its pool size and window.
  struct Limits {
    std::int32_t group = 0;  ///< index of the KV group in the program
    KvPoolSize room;
  };
  /// Sizes of the main pool.
  struct Shape {
    std::size_t block_tokens = 0, sequences_max = 0, table_blocks = 0, pool_blocks = 0;
  };

  /// Errors: Error(kInternal) for limits of zero.
  KvWindow(const Limits& limits, const Shape& shape);

  [[nodiscard]] std::int32_t group() const { return limits_.group; }
  [[nodiscard]] std::size_t blocks_free() const { return free_blocks_.size() + idle_.size(); }
  [[nodiscard]] std::uint32_t references(std::int32_t block) const { return entry(block).references; }
  /// Block table of a sequence; kNoBlock in front of its window.
  [[nodiscard]] std::span<const std::int32_t> table(std::uint32_t slot) const;

  /// True if the sequence, cut to `tokens` positions, still has everything that the next token sees.
  [[nodiscard]] bool holds_window_at(std::uint32_t slot, std::size_t tokens) const;
  /// Number of new blocks needed to grow from `tokens` to `after` positions.
  [[nodiscard]] std::size_t blocks_to_append(std::uint32_t slot, std::size_t tokens, std::size_t after) const;
  /// Grows the sequence; callers have checked that there are enough blocks. Returns the copy to make if the last block
  /// was shared.
  std::optional<BlockCopy> append(std::uint32_t slot, std::size_t tokens, std::size_t after);
  /// The same for a decode loop on the device, during which no block can be given back: blocks behind the window are
  /// reused as a ring. The sequence must not share blocks. Ended by `trim`.
  void append_ring(std::uint32_t slot, std::size_t after);
  /// Number of new blocks that append_ring would take.
  [[nodiscard]] std::size_t blocks_to_append_ring(std::uint32_t slot, std::size_t after) const;
  /// Gives back blocks that a token at position `tokens` cannot see.
  void release_outside_window(std::uint32_t slot, std::size_t tokens);
  /// Drops positions from `tokens` on. Precondition: holds_window_at(slot, tokens).
  void trim(std::uint32_t slot, std::size_t tokens) noexcept;
  /// Shares what `parent` holds of the first `tokens` positions with the empty slot `child`. Precondition:
  /// holds_window_at.
  void fork(std::uint32_t parent, std::uint32_t child, std::size_t tokens);

  /// The pool has published `block`, which holds the same positions as logical block `index` of this slot: they become
  /// companions.
  void publish(std::uint32_t slot, std::size_t index, std::int32_t block);
  /// True if all companions exist that the token after `prefix` (blocks of the main pool) sees.
  [[nodiscard]] bool covers(std::span<const std::int32_t> prefix) const;
  /// Starts the empty `slot` with the companions of `prefix`. Precondition: covers(prefix).
  void open(std::uint32_t slot, std::span<const std::int32_t> prefix);
  /// The main pool has evicted `block`: its companion can no longer be found.
  void forget(std::int32_t block) noexcept;

  /// Checks all invariants. is_open: [sequences_max], slots that the main pool has open. Throws Error(kInternal) naming
  /// the broken invariant.
  void audit(std::span<const bool> is_open) const;

 private:
  struct Entry {
    std::uint32_t references = 0;
    std::int32_t companion_of = kNoBlock;  ///< the published block of the main pool; kNoBlock: none
  };
  /// Logical blocks [begin, end) are mapped. ring > 0: a ring, in which only the first `ring` entries are different
  /// blocks and later ones repeat them.
  struct Slot {
    std::size_t begin = 0, end = 0, ring = 0;
    [[nodiscard]] std::size_t held() const { return ring > 0 && ring < end - begin ? ring : end - begin; }
  };

  [[nodiscard]] const Entry& entry(std::int32_t block) const { return entries_[static_cast<std::size_t>(block)]; }
  Entry& entry(std::int32_t block) { return entries_[static_cast<std::size_t>(block)]; }
  std::span<std::int32_t> row(std::uint32_t slot);
  [[nodiscard]] std::size_t blocks_for(std::size_t tokens) const;
  [[nodiscard]] std::size_t first_block(std::size_t position) const;
  [[nodiscard]] std::size_t ring_blocks() const;
  [[nodiscard]] bool is_own(std::int32_t block) const;
  std::int32_t take();
  void share(std::int32_t block) noexcept;
  void drop(std::int32_t block) noexcept;

  Limits limits_;
  Shape shape_;
  std::vector<Entry> entries_;             ///< [blocks]
  std::vector<std::int32_t> free_blocks_;  ///< stack
  std::vector<std::int32_t> tables_;       ///< [sequences_max, table_blocks]
  std::vector<Slot> slots_;                ///< [sequences_max]
  std::vector<std::int32_t> companions_;   ///< [pool_blocks], companion of each block of the main pool, or kNoBlock
  KvIdleList idle_;
};

}  // namespace forge::runtime
