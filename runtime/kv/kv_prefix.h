#pragma once
// Which blocks of a KV pool can be found by what they hold, and in which order they are given up. A full block is known
// by the chain of token ids up to its end, its own ids and the block before it, and by the extra hash of its request:
// that of what keys and values depend on beside the ids (an adapter, images). The hash of all that only finds
// candidates; ids, predecessor and extra hash are compared, so a crafted collision costs time and never another's keys
// and values. Source: PagedAttention, arXiv 2309.06180.
//
// All memory is taken by the constructor. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kv/kv_idle.h"

namespace forge::runtime {

class KvPrefixIndex {
 public:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::size_t kBeginningsMax = 64;  ///< that are looked at: a system prompt has as many as requests

  /// How far a chain of full blocks has come. `birth` names the entry of its last block for ever; numbers of blocks
  /// come back, births do not.
  struct Chain {
    std::uint64_t hash = 0, birth = 0;
    std::uint64_t extra = 0;
  };

  /// `group`: chains of different KV groups never meet.
  KvPrefixIndex(std::size_t blocks, std::size_t block_tokens, std::uint32_t group);

  /// Chains of different extra hashes never meet.
  [[nodiscard]] Chain root(std::uint64_t extra = 0) const;
  /// The block that continues `chain` with exactly `ids` [block_tokens], or kNone.
  [[nodiscard]] std::int32_t find(const Chain& chain, std::span<const std::int32_t> ids) const;
  /// What of the block that is next a published one holds too.
  struct Beginning {
    std::int32_t block = kNone;
    std::size_t tokens = 0;  ///< of its first ids; less than a block
  };
  /// The block behind `chain` that begins with most of `ids`; of equals, and of more than kBeginningsMax, the newest.
  [[nodiscard]] Beginning find_beginning(const Chain& chain, std::span<const std::int32_t> ids) const;
  /// Makes `block` findable as the one that continues `chain` with `ids`; neither is there yet.
  void insert(const Chain& chain, std::span<const std::int32_t> ids, std::int32_t block);
  [[nodiscard]] bool holds(std::int32_t block) const { return entry(block).birth != 0; }
  /// The chain that ends with a block of the index.
  [[nodiscard]] Chain chain_of(std::int32_t block) const {
    return {entry(block).hash, entry(block).birth, entry(block).extra};
  }

  /// Whether a block of the index continues `chain`.
  [[nodiscard]] bool follows(std::int32_t block, const Chain& chain) const {
    return entry(block).parent == chain.birth && entry(block).extra == chain.extra;
  }

  /// Nobody reads a block of the index any more; it is given up after those that were idle before.
  void set_idle(std::int32_t block);
  /// Somebody reads it again.
  void set_busy(std::int32_t block);
  [[nodiscard]] std::size_t idle() const { return idle_.size(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Forgets the block that has been idle longest, and returns it; there is one.
  std::int32_t evict();

  /// Throws Error(kInternal) naming the broken invariant; is_idle: [blocks], what the caller knows.
  void audit(std::span<const bool> is_idle) const;

 private:
  struct Entry {
    std::uint64_t hash = 0, birth = 0, parent = 0;  ///< birth 0: not in the index
    std::uint64_t extra = 0;
    std::int32_t bucket_next = kNone;           ///< of the same bucket
    std::int32_t newer = kNone, older = kNone;  ///< of the same bucket of parents
  };
  [[nodiscard]] const Entry& entry(std::int32_t block) const { return entries_[static_cast<std::size_t>(block)]; }
  Entry& entry(std::int32_t block) { return entries_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] std::size_t bucket_of(std::uint64_t hash) const { return hash & (buckets_.size() - 1); }
  [[nodiscard]] std::size_t parent_bucket_of(std::uint64_t birth, std::uint64_t extra) const {
    return (birth ^ extra) * 0x9e3779b97f4a7c15U >> 20U & (newest_.size() - 1);
  }
  [[nodiscard]] std::span<const std::int32_t> ids_of(std::int32_t block) const;
  [[nodiscard]] std::uint64_t hash_of(const Chain& chain, std::span<const std::int32_t> ids) const;

  std::size_t block_tokens_;
  Chain root_;
  std::vector<Entry> entries_;         ///< [blocks]
  std::vector<std::int32_t> ids_;      ///< [blocks, block_tokens]
  std::vector<std::int32_t> buckets_;  ///< a power of two, at least twice the blocks: heads of lists
  std::vector<std::int32_t> newest_;   ///< the same by parents: who continues the same chain is in one list
  KvIdleList idle_;
  std::size_t size_ = 0;
  std::uint64_t births_ = 0;
};

}  // namespace forge::runtime
