#pragma once
// The prefix cache's index: finds KV blocks by the tokens that they hold (source: PagedAttention, arXiv 2309.06180),
// and evicts the least recently used. Used by KvBlockPool only.
//
// A block's identity is its own token ids, the block before it and the request's extra hash (a hash of everything else
// that keys and values depend on, e.g. an adapter or images):
//
//   root --[ids 0..31]--> block 5 (birth 1) --[ids 32..63]-----> block 8 (birth 2, parent 1)
//                                          \--[other 32 ids]---> block 2 (birth 3, parent 1)
//
// The last block of a sequence that has ended may be in the index although it is not full (a tail); nothing continues
// it.
//
// Block numbers are reused after eviction, so predecessors are named by `birth`, a counter that never repeats.
// Otherwise a block could seem to continue a new block that happens to have its old predecessor's number.
//
// Hashes only find candidates. Ids, predecessor and extra hash are compared exactly, so a crafted collision costs time
// but never returns another request's keys and values.
//
// All memory is allocated by the constructor. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kv/kv_idle.h"

namespace forge::runtime {

class KvPrefixIndex {
 public:
  static constexpr std::int32_t kNone = -1;
  /// Candidates compared for a partial match; e.g. all requests continue the same system prompt.
  static constexpr std::size_t kPartialCandidatesMax = 64;

  /// A position in the index: the end of a chain of full blocks. `hash` covers all tokens so far, `birth` identifies
  /// the last block's entry (0: root), `extra` is the request's extra hash.
  struct Chain {
    std::uint64_t hash = 0, birth = 0;
    std::uint64_t extra = 0;
  };

  /// `group` seeds the hash, so that KV groups have different hashes.
  KvPrefixIndex(std::size_t blocks, std::size_t block_tokens, std::uint32_t group);

  /// The start of all chains with this extra hash. Chains with different extra hashes share no blocks.
  [[nodiscard]] Chain root(std::uint64_t extra = 0) const;
  /// Returns the block that continues `chain` with exactly `ids` [block_tokens], or kNone.
  [[nodiscard]] std::int32_t find(const Chain& chain, std::span<const std::int32_t> ids) const;
  /// A block whose first tokens match the next ids.
  struct PartialMatch {
    std::int32_t block = kNone;
    std::size_t tokens = 0;  ///< number of matching tokens; less than a block
  };
  /// Returns the block after `chain` that shares most leading tokens with `ids`. Among equals the newest; only the
  /// newest kPartialCandidatesMax candidates are compared.
  [[nodiscard]] PartialMatch find_partial(const Chain& chain, std::span<const std::int32_t> ids) const;
  /// Adds `block` as the continuation of `chain` with `ids`, a tail if they fill no block. Neither the block nor this
  /// continuation may be in the index.
  void insert(const Chain& chain, std::span<const std::int32_t> ids, std::int32_t block);
  /// Makes `block`, which is in the index, continue `chain`. It continued an equal one before, whose last block was
  /// evicted while a fork still used this one. Blocks and snapshots behind it stay valid.
  void rejoin(const Chain& chain, std::int32_t block);
  /// Takes `block`, a tail in use, out of the index.
  void remove(std::int32_t block);
  /// Tokens of `block`, which is in the index.
  [[nodiscard]] std::size_t tokens_of(std::int32_t block) const { return entry(block).tokens; }
  /// True if the block is in the index.
  [[nodiscard]] bool holds(std::int32_t block) const { return entry(block).birth != 0; }
  /// The chain that ends with `block`, which must be in the index.
  [[nodiscard]] Chain chain_of(std::int32_t block) const {
    return {entry(block).hash, entry(block).birth, entry(block).extra};
  }

  /// True if `block`, which is in the index, continues `chain`.
  [[nodiscard]] bool follows(std::int32_t block, const Chain& chain) const {
    return entry(block).parent == chain.birth && entry(block).extra == chain.extra;
  }

  /// The block has lost its last reference: it becomes the newest idle block.
  void set_idle(std::int32_t block);
  /// The block is referenced again: it leaves the idle list.
  void set_busy(std::int32_t block);
  [[nodiscard]] std::size_t idle() const { return idle_.size(); }
  /// The block that evict() takes next; kNone if there is none.
  [[nodiscard]] std::int32_t oldest_idle() const { return idle_.oldest(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Removes the least recently used idle block from the index and returns it. Precondition: idle() > 0.
  std::int32_t evict();

  /// Checks all invariants. is_idle: [blocks], true where the caller's reference counts say idle. Throws
  /// Error(kInternal) naming the broken invariant.
  void audit(std::span<const bool> is_idle) const;

 private:
  /// One per block. parent: the birth of the block before it, 0 for the root.
  struct Entry {
    std::uint64_t hash = 0, birth = 0, parent = 0;  ///< birth 0: not in the index
    std::uint64_t extra = 0;
    std::size_t tokens = 0;
    std::int32_t bucket_next = kNone;           ///< next block in the same hash bucket
    std::int32_t newer = kNone, older = kNone;  ///< neighbours in the list of the parent's bucket
  };
  [[nodiscard]] const Entry& entry(std::int32_t block) const { return entries_[static_cast<std::size_t>(block)]; }
  Entry& entry(std::int32_t block) { return entries_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] std::size_t bucket_of(std::uint64_t hash) const { return hash & (buckets_.size() - 1); }
  /// Multiplicative (Fibonacci) hash of the parent; the upper bits of the product are the well-mixed ones.
  [[nodiscard]] std::size_t parent_bucket_of(std::uint64_t birth, std::uint64_t extra) const {
    return (birth ^ extra) * 0x9e3779b97f4a7c15U >> 20U & (newest_.size() - 1);
  }
  void link_to_parent(std::int32_t block);
  void unlink_from_parent(std::int32_t block);
  void forget(std::int32_t block);
  [[nodiscard]] std::span<const std::int32_t> ids_of(std::int32_t block) const;
  [[nodiscard]] std::uint64_t hash_of(const Chain& chain, std::span<const std::int32_t> ids) const;

  std::size_t block_tokens_;
  Chain root_;
  std::vector<Entry> entries_;         ///< [blocks]
  std::vector<std::int32_t> ids_;      ///< [blocks, block_tokens]
  std::vector<std::int32_t> buckets_;  ///< heads of hash buckets; a power of two, at least twice the blocks
  /// Heads of the lists by parent, same size; blocks that continue one chain are in one list.
  std::vector<std::int32_t> newest_;
  KvIdleList idle_;
  std::size_t size_ = 0;
  std::uint64_t births_ = 0;
};

}  // namespace forge::runtime
