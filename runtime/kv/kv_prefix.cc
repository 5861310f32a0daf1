#include "runtime/kv/kv_prefix.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "support/error.h"

namespace forge::runtime {

KvPrefixIndex::KvPrefixIndex(std::size_t blocks, std::size_t block_tokens, std::uint32_t group)
    : block_tokens_(block_tokens),
      root_{.hash = XXH3_64bits(&group, sizeof group), .birth = 0},
      entries_(blocks),
      ids_(blocks * block_tokens),
      buckets_(std::bit_ceil(2 * blocks), kNone),
      newest_(buckets_.size(), kNone),
      idle_(blocks) {}

/// The token ids that a block of the index holds.
std::span<const std::int32_t> KvPrefixIndex::ids_of(std::int32_t block) const {
  return std::span(ids_).subspan(static_cast<std::size_t>(block) * block_tokens_, tokens_of(block));
}

KvPrefixIndex::Chain KvPrefixIndex::root(std::uint64_t extra) const {
  auto chain = root_;
  chain.extra = extra;
  if (extra != 0) chain.hash = XXH3_64bits_withSeed(&extra, sizeof extra, root_.hash);
  return chain;
}

/// The hash chains: the previous block's hash is the seed, so it covers all tokens since the start of the prompt.
std::uint64_t KvPrefixIndex::hash_of(const Chain& chain, std::span<const std::int32_t> ids) const {
  return XXH3_64bits_withSeed(ids.data(), ids.size_bytes(), chain.hash);
}

/// Looks in the hash bucket. Hash, predecessor, extra hash and ids are all compared, so a collision cannot return a
/// wrong block.
std::int32_t KvPrefixIndex::find(const Chain& chain, std::span<const std::int32_t> ids) const {
  const auto hash = hash_of(chain, ids);
  std::int32_t block = buckets_[bucket_of(hash)];
  while (block != kNone) {
    const auto& e = entry(block);
    if (e.hash == hash && follows(block, chain) && std::ranges::equal(ids_of(block), ids)) break;
    block = e.bucket_next;
  }
  return block;
}

/// Walks the blocks that continue the same chain, newest first, and compares ids. A full match is find()'s business.
KvPrefixIndex::PartialMatch KvPrefixIndex::find_partial(const Chain& chain, std::span<const std::int32_t> ids) const {
  PartialMatch best;
  std::size_t looked_at = 0;
  for (std::int32_t block = newest_[parent_bucket_of(chain.birth, chain.extra)];
       block != kNone && looked_at < kPartialCandidatesMax; block = entry(block).older, ++looked_at) {
    if (!follows(block, chain)) continue;
    const auto alike = std::ranges::mismatch(ids, ids_of(block)).in1 - ids.begin();
    if (const auto tokens = static_cast<std::size_t>(alike); tokens > best.tokens && tokens < block_tokens_)
      best = {.block = block, .tokens = tokens};
  }
  return best;
}

/// Links the block into its hash bucket (singly linked) and into its parent's list (doubly linked, newest first).
void KvPrefixIndex::insert(const Chain& chain, std::span<const std::int32_t> ids, std::int32_t block) {
  auto& e = entry(block);
  invariant(e.birth == 0 && !ids.empty() && ids.size() <= block_tokens_, "KV-020",
            "blocks that hold tokens enter the index, each once");
  e = {.hash = hash_of(chain, ids),
       .birth = ++births_,
       .parent = chain.birth,
       .extra = chain.extra,
       .tokens = ids.size()};
  auto& head = buckets_[bucket_of(e.hash)];
  e.bucket_next = head;
  head = block;
  link_to_parent(block);
  std::ranges::copy(ids, ids_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(block) * block_tokens_));
  ++size_;
}

void KvPrefixIndex::rejoin(const Chain& chain, std::int32_t block) {
  auto& e = entry(block);
  invariant(e.birth != 0 && e.extra == chain.extra && e.hash == hash_of(chain, ids_of(block)), "KV-029",
            "a block rejoins a chain that is equal to the one it continued");
  unlink_from_parent(block);
  e.parent = chain.birth;
  link_to_parent(block);
}

void KvPrefixIndex::link_to_parent(std::int32_t block) {
  auto& e = entry(block);
  auto& newest = newest_[parent_bucket_of(e.parent, e.extra)];
  e.older = newest;
  if (newest != kNone) entry(newest).newer = block;
  newest = block;
}

void KvPrefixIndex::unlink_from_parent(std::int32_t block) {
  auto& e = entry(block);
  if (e.older != kNone) entry(e.older).newer = e.newer;
  (e.newer != kNone ? entry(e.newer).older : newest_[parent_bucket_of(e.parent, e.extra)]) = e.older;
  e.older = e.newer = kNone;
}

void KvPrefixIndex::set_idle(std::int32_t block) {
  invariant(holds(block) && !idle_.holds(block), "KV-021", "a block of the index is set idle only once");
  idle_.push(block);
}

void KvPrefixIndex::set_busy(std::int32_t block) {
  invariant(holds(block) && idle_.holds(block), "KV-022", "a block that is read again was idle");
  idle_.remove(block);
}

/// Unlinks the oldest idle block from both lists. Blocks that continue it keep its `birth` as their parent and can no
/// longer be found, because no block gets that birth again; see rejoin().
std::int32_t KvPrefixIndex::evict() {
  invariant(idle_.size() > 0, "KV-023", "only an idle block is evicted");
  const std::int32_t block = idle_.oldest();
  set_busy(block);
  forget(block);
  return block;
}

void KvPrefixIndex::remove(std::int32_t block) {
  invariant(holds(block) && !idle_.holds(block) && tokens_of(block) < block_tokens_, "KV-030",
            "a tail that leaves the index is in use");
  forget(block);
}

void KvPrefixIndex::forget(std::int32_t block) {
  auto& e = entry(block);
  std::int32_t* link = &buckets_[bucket_of(e.hash)];
  while (*link != block) link = &entry(*link).bucket_next;
  *link = e.bucket_next;
  unlink_from_parent(block);
  e = {};
  --size_;
}

void KvPrefixIndex::audit(std::span<const bool> is_idle) const {
  std::size_t held = 0, idle = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto block = static_cast<std::int32_t>(i);
    const auto& e = entries_[i];
    held += e.birth != 0 ? 1 : 0;
    idle += idle_.holds(block) ? 1 : 0;
    invariant(idle_.holds(block) == is_idle[i], "KV-024", "the index's idle blocks are those without references");
    if (e.birth == 0) continue;
    std::int32_t found = buckets_[bucket_of(e.hash)];
    while (found != kNone && found != block) found = entry(found).bucket_next;
    invariant(found == block, "KV-025", "a block of the index is found by its hash");
    const auto& newer = e.newer == kNone ? newest_[parent_bucket_of(e.parent, e.extra)] : entry(e.newer).older;
    invariant(newer == block && (e.older == kNone || entry(e.older).newer == block), "KV-028",
              "a block of the index is listed once by its parent");
  }
  invariant(idle_.is_sound(), "KV-026", "idle blocks are listed once, the oldest first");
  invariant(held == size_ && idle == idle_.size(), "KV-027", "the index counts what it holds");
}

}  // namespace forge::runtime
