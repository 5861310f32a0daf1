#pragma once
// Who owns which block of a paged KV pool. Only numbers: the bytes lie in the executor's pool. A block holds
// `block_tokens` positions of one sequence, or of several that share a prefix; it returns to the pool when its last
// reference goes. Source: PagedAttention, arXiv 2309.06180.
//
// All memory is taken by the constructor. Not thread-safe: the scheduler's thread owns the pool.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace forge::runtime {

class KvBlockPool;

/// Copy the contents of block `from` to block `to` in every layer, before anything of this step is written.
struct BlockCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

struct AppendResult {
  bool ok = false;  ///< false: not enough free blocks, or longer than a sequence can be; nothing changed
  std::optional<BlockCopy> copy;
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

  /// Fresh blocks that append(tokens) would take.
  [[nodiscard]] std::size_t blocks_to_append(std::size_t tokens) const;
  /// Makes room for `tokens` more positions, all or nothing. When the last block is half full and shared, this
  /// sequence gets a block of its own and the answer says what to copy into it.
  [[nodiscard]] AppendResult append(std::size_t tokens);
  /// Forgets all positions from `tokens` on (rejected drafts, a stop string). More than there are: nothing happens.
  void trim(std::size_t tokens);

  /// Another sequence with the first `tokens` positions of this one (at most tokens()), sharing their blocks.
  /// Nothing when sequences_max are open.
  [[nodiscard]] std::optional<KvSequence> fork(std::size_t tokens) const;

 private:
  friend class KvBlockPool;
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
  };

  /// Errors: Error(kInternal) for limits of zero or beyond 31 bits.
  explicit KvBlockPool(const Limits& limits);
  KvBlockPool(const KvBlockPool&) = delete;
  KvBlockPool& operator=(const KvBlockPool&) = delete;

  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] std::size_t blocks_free() const { return free_blocks_.size(); }
  [[nodiscard]] std::size_t sequences_free() const { return free_slots_.size(); }
  [[nodiscard]] std::uint32_t references(std::int32_t block) const;

  /// An empty sequence, or one that begins with full blocks that somebody holds (a prefix cache). Nothing when
  /// sequences_max are open.
  [[nodiscard]] std::optional<KvSequence> open(std::span<const std::int32_t> full_blocks = {});

  /// For holders outside sequences, such as a prefix cache: one more reference to a block in use, or one less.
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
    bool open = false;
  };

  std::int32_t take();
  std::span<std::int32_t> table(std::uint32_t slot);
  std::span<const std::int32_t> table(std::uint32_t slot) const;
  std::size_t blocks_for(std::size_t tokens) const;
  bool must_copy(const Slot& slot, std::uint32_t index, std::size_t tokens) const;
  void close(std::uint32_t slot);

  Limits limits_;
  std::size_t table_blocks_ = 0;
  std::vector<std::uint32_t> references_;  ///< [blocks]
  std::vector<std::int32_t> free_blocks_;  ///< a stack
  std::vector<std::int32_t> tables_;       ///< [sequences_max, table_blocks_]
  std::vector<Slot> slots_;                ///< [sequences_max]
  std::vector<std::uint32_t> free_slots_;  ///< a stack
};

}  // namespace forge::runtime
