// The prefix cache: which prefixes are found, in which order idle blocks are evicted, and, with a model of the block
// contents, that every sequence reads what it wrote after any order of operations.

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "runtime/kv/kv_blocks.h"
#include "support/error.h"

namespace forge {
namespace {

using runtime::KvBlockPool;
using runtime::KvSequence;

std::vector<std::int32_t> rising(std::size_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

/// A sequence that holds `ids` and has published them.
KvSequence filled(KvBlockPool& pool, std::span<const std::int32_t> ids) {
  auto sequence = pool.open(ids).value();
  REQUIRE(sequence.append(ids.size() - sequence.tokens()).ok);
  sequence.publish(ids);
  return sequence;
}

TEST_CASE("a published prefix is found by later sequences, as far as full blocks agree") {
  KvBlockPool pool({.blocks = 16, .block_tokens = 4, .sequences_max = 4, .tokens_max = 32});
  const auto ids = rising(10);
  auto first = filled(pool, ids);
  CHECK(pool.match(ids).blocks == 2);
  CHECK(pool.match(std::span(ids).first(7)).blocks == 1);
  const auto other = rising(10, 1);
  CHECK(pool.match(other).blocks == 0);
  auto mixed = ids;
  mixed[5] = 99;
  {
    auto second = pool.open(mixed).value();
    CHECK(second.tokens() == 4);
    CHECK(second.blocks()[0] == first.blocks()[0]);
    CHECK(pool.references(first.blocks()[0]) == 2);
    CHECK_FALSE(second.append(1).copy.has_value());
  }
  // The same block after another prefix has different contents, so it must not match.
  auto shifted = rising(4, 50);
  shifted.insert(shifted.end(), ids.begin() + 4, ids.begin() + 8);
  CHECK(pool.match(shifted).blocks == 0);
  pool.audit();
}

TEST_CASE("equal tokens with another extra hash are a different prefix") {
  KvBlockPool pool({.blocks = 32, .block_tokens = 4, .sequences_max = 8, .tokens_max = 32, .min_partial_tokens = 2});
  const auto ids = rising(11), longer = rising(15);
  constexpr std::uint64_t kAdapter = 7, kOther = ~std::uint64_t{0};
  const auto fill = [&](std::uint64_t extra) {
    auto sequence = pool.open(ids, extra).value();
    CHECK(sequence.tokens() == 0);
    REQUIRE(sequence.append(ids.size()).ok);
    sequence.publish(ids);
    return sequence;
  };
  const auto plain = fill(0), adapted = fill(kAdapter);
  CHECK((pool.match(longer).blocks == 2 && pool.match(longer, kAdapter).blocks == 2));
  CHECK((pool.match(longer, kOther).blocks == 0 && pool.match(longer, kOther).tokens == 0));
  // A partial block is not shared across extra hashes either.
  CHECK((pool.match(rising(3)).tokens == 3 && pool.match(rising(3), kOther).tokens == 0));
  auto again = pool.open(longer, kAdapter).value();
  CHECK(again.tokens() == 8);
  CHECK(again.blocks()[0] == adapted.blocks()[0]);
  CHECK(again.blocks()[0] != plain.blocks()[0]);
  // Blocks published after a shared prefix carry the same extra hash, also in forks.
  REQUIRE(again.append(longer.size() - 8).ok);
  auto forked = again.fork(longer.size()).value();
  again.publish(longer);
  REQUIRE(forked.append(1).ok);
  forked.publish(rising(16));
  CHECK((pool.match(rising(16), kAdapter).blocks == 4 && pool.match(rising(16)).blocks == 2));
  pool.audit();
}

TEST_CASE("a sequence begins with a copy of a block whose first tokens are equal") {
  KvBlockPool pool({.blocks = 8, .block_tokens = 4, .sequences_max = 4, .tokens_max = 32, .min_partial_tokens = 2});
  const auto ids = rising(12);
  const auto first = filled(pool, ids);
  auto alike = ids;
  alike[6] = 99;
  {
    auto second = pool.open(alike).value();
    CHECK((pool.match(alike).blocks == 1 && pool.match(alike).tokens == 6 && second.tokens() == 6));
    CHECK(second.blocks()[1] == first.blocks()[1]);
    CHECK(second.blocks_to_append(4) == 2);  // one of them replaces the shared partial block by a copy
    const auto grown = second.append(4);
    REQUIRE((grown.ok && grown.copy.has_value()));
    CHECK((grown.copy->from == first.blocks()[1] && grown.copy->to == second.blocks()[1]));
    CHECK(pool.references(first.blocks()[1]) == 1);
    second.publish(std::span(alike).first(10));
  }
  auto third = alike;
  third[7] = 98;
  CHECK(pool.match(third).tokens == 7);  // the cached block with the longest common part is used
  third[5] = 97;
  CHECK(pool.match(third).tokens == 4);  // one token is below min_partial_tokens
  pool.audit();
}

TEST_CASE("a sequence continues in place where another one has ended") {
  KvBlockPool pool({.blocks = 8, .block_tokens = 4, .sequences_max = 4, .tokens_max = 32, .min_partial_tokens = 3});
  const auto ids = rising(16);
  const auto end = [&](std::size_t tokens) {
    auto sequence = pool.open(std::span(ids).first(tokens)).value();
    REQUIRE(sequence.append(tokens - sequence.tokens()).ok);
    sequence.publish_end(std::span(ids).first(tokens));
    return sequence.blocks().back();
  };
  const auto tail = end(5);  // one token in its last block, fewer than min_partial_tokens
  CHECK((pool.match(ids).tokens == 5 && pool.match(ids).blocks == 1));
  {
    auto next = pool.open(ids).value();
    CHECK((next.tokens() == 5 && next.blocks()[1] == tail && next.blocks_to_append(2) == 0));
    const auto grown = next.append(2);
    CHECK((grown.ok && !grown.copy && next.blocks()[1] == tail));
    CHECK(pool.match(ids).tokens == 4);  // it is written, so it is not found
    pool.audit();
  }
  (void)end(7);
  auto first = pool.open(ids).value();
  auto second = pool.open(ids).value();
  CHECK((first.tokens() == 7 && second.tokens() == 7));
  const auto copy = first.append(1).copy;  // the other one reads it
  CHECK((copy && copy->from == second.blocks()[1]));
  CHECK_FALSE(second.append(1).copy);
  // Half of a tail is copied: the rest can still be found.
  first.publish_end(std::span(ids).first(8));
  CHECK(pool.match(ids).tokens == 8);
  auto longer = pool.open(ids).value();
  REQUIRE(longer.append(3).ok);
  longer.publish_end(std::span(ids).first(11));
  auto other = ids;
  other[11] = 99;
  auto branch = pool.open(std::span(other).first(12)).value();
  CHECK((branch.tokens() == 11 && branch.trim(10) == 10 && branch.append(1).copy));
  CHECK(pool.match(ids).tokens == 11);
  pool.audit();
}

TEST_CASE("the end of a sequence is kept only where the index has no more of it") {
  KvBlockPool pool({.blocks = 8, .block_tokens = 4, .sequences_max = 4, .tokens_max = 32, .min_partial_tokens = 1});
  const auto ids = rising(8);
  const auto end_all = [&](KvBlockPool& in, std::initializer_list<std::size_t> lengths) {
    for (const std::size_t tokens : lengths) {
      auto sequence = in.open().value();
      REQUIRE(sequence.append(tokens).ok);
      sequence.publish_end(std::span(ids).first(tokens));
    }
  };
  end_all(pool, {8, 6, 3, 6});
  CHECK((pool.blocks_idle() == 2 && pool.match(ids).blocks == 2));
  // A full block replaces no tail, but is found before it.
  KvBlockPool other(pool.limits());
  end_all(other, {3, 6, 8});
  CHECK((other.blocks_idle() == 4 && other.match(ids).blocks == 2));
  pool.audit();
  other.audit();
}

TEST_CASE("a block that a shorter fork published as its end is published again by the one that holds more of it") {
  KvBlockPool pool({.blocks = 8, .block_tokens = 4, .sequences_max = 3, .tokens_max = 16, .min_partial_tokens = 1});
  const auto ids = rising(9);
  auto longest = pool.open().value();
  REQUIRE(longest.append(9).ok);
  const auto end_at = [&](std::size_t tokens) {
    auto fork = longest.fork(tokens).value();
    fork.publish_end(std::span(ids).first(tokens));
  };
  end_at(1);
  CHECK(pool.match(ids).tokens == 1);
  end_at(3);
  CHECK(pool.match(ids).tokens == 3);
  end_at(2);
  CHECK(pool.match(ids).tokens == 3);
  longest.publish(ids);
  CHECK((pool.match(ids).blocks == 2 && pool.match(ids).tokens == 8));
  CHECK(pool.references(longest.blocks()[0]) == 1);
  pool.audit();
}

TEST_CASE("a sequence that needs the whole pool does not keep the block that it copied from") {
  KvBlockPool pool({.blocks = 3, .block_tokens = 4, .sequences_max = 2, .tokens_max = 12, .min_partial_tokens = 1});
  auto ids = rising(12);
  {
    const auto closed = filled(pool, ids);
  }
  ids[6] = 99;
  CHECK(pool.match(std::span(ids).first(7)).tokens == 6);
  CHECK(pool.match(std::span(ids).first(11)).tokens == 4);
  auto whole = pool.open(std::span(ids).first(11)).value();
  CHECK(whole.append(12 - whole.tokens()).ok);
  pool.audit();
}

TEST_CASE("idle blocks stay in the cache until memory is needed, and a prefix is evicted from its end") {
  KvBlockPool pool({.blocks = 6, .block_tokens = 2, .sequences_max = 3, .tokens_max = 12});
  const auto old = rising(6), young = rising(4, 100);
  {
    const auto closed = filled(pool, old);
  }
  {
    const auto closed = filled(pool, young);
  }
  CHECK((pool.blocks_free() == 6 && pool.blocks_idle() == 5));
  CHECK((pool.match(old).blocks == 3 && pool.match(old).idle == 3));
  auto sequence = pool.open().value();
  REQUIRE(sequence.append(2).ok);  // uses the free block
  CHECK(pool.evictions() == 0);
  REQUIRE(sequence.append(2).ok);
  CHECK(pool.match(old).blocks == 2);
  {
    const auto used = pool.open(old);
  }  // now `young` is the least recently used
  REQUIRE(sequence.append(2).ok);
  CHECK((pool.match(old).blocks == 2 && pool.match(young).blocks == 1));
  pool.audit();
  REQUIRE(sequence.append(6).ok);
  CHECK((pool.blocks_free() == 0 && pool.match(old).blocks + pool.match(young).blocks == 0));
  CHECK(pool.evictions() == 5);
  pool.audit();
}

TEST_CASE("a published block is never written again: after a trim into it, a write copies it") {
  KvBlockPool pool({.blocks = 6, .block_tokens = 4, .sequences_max = 2, .tokens_max = 16});
  const auto ids = rising(8);
  auto sequence = filled(pool, ids);
  const std::int32_t published = sequence.blocks()[1];
  sequence.trim(6);
  CHECK(sequence.blocks_to_append(1) == 1);
  const auto grown = sequence.append(1);
  REQUIRE(grown.copy.has_value());
  CHECK((grown.copy->from == published && grown.copy->to == sequence.blocks()[1]));
  CHECK((pool.match(ids).blocks == 2 && pool.match(ids).idle == 1));
  auto changed = ids;
  changed[6] = 42;
  REQUIRE(sequence.append(1).ok);
  sequence.publish(changed);
  CHECK((pool.match(changed).blocks == 2 && pool.match(ids).blocks == 2));
  pool.audit();
}

TEST_CASE("two sequences that wrote the same prefix end up with one copy of it") {
  KvBlockPool pool({.blocks = 8, .block_tokens = 2, .sequences_max = 2, .tokens_max = 8});
  const auto ids = rising(5);
  auto a = pool.open(ids).value(), b = pool.open(ids).value();
  REQUIRE((a.append(5).ok && b.append(5).ok));
  CHECK(pool.blocks_free() == 2);
  a.publish(std::span(ids).first(4));
  b.publish(ids);
  CHECK(pool.blocks_free() == 4);
  CHECK((a.blocks()[0] == b.blocks()[0] && a.blocks()[1] == b.blocks()[1] && a.blocks()[2] != b.blocks()[2]));
  pool.audit();
}

// Found by random operations: the fork publishes last, when its second block is in the index already, behind a first
// block that is gone.
TEST_CASE("a fork publishes after the block before its own was evicted") {
  KvBlockPool pool({.blocks = 6, .block_tokens = 4, .sequences_max = 3, .tokens_max = 16});
  const auto ids = rising(12);
  (void)filled(pool, rising(4));
  auto parent = std::optional(pool.open().value());
  REQUIRE(parent->append(8).ok);
  auto child = parent->fork(8).value();
  parent->publish(std::span(ids).first(8));
  CHECK(parent->blocks()[0] != child.blocks()[0]);
  CHECK(parent->blocks()[1] == child.blocks()[1]);
  parent.reset();
  pool.evict_idle();
  REQUIRE(child.append(4).ok);
  child.publish(ids);
  CHECK(pool.match(ids).blocks == 3);
  pool.audit();
}

TEST_CASE("prefixes of different KV groups differ, and evict_idle forgets all idle ones") {
  runtime::KvPrefixIndex full(4, 2, 0), window(4, 2, 1);
  CHECK(full.root().hash != window.root().hash);
  // Equal hashes are not enough: the parent block must be the same entry.
  full.insert(full.root(), rising(2), 3);
  CHECK(full.find(full.root(), rising(2)) == 3);
  CHECK(full.find({.hash = full.root().hash, .birth = 9}, rising(2)) == runtime::KvPrefixIndex::kNone);
  KvBlockPool pool({.blocks = 4, .block_tokens = 2, .sequences_max = 2, .tokens_max = 8, .group = 1});
  const auto ids = rising(4);
  {
    const auto closed = filled(pool, ids);
  }
  auto open = filled(pool, rising(2, 7));
  pool.evict_idle();
  CHECK((pool.match(ids).blocks == 0 && pool.match(rising(2, 7)).blocks == 1 && pool.blocks_free() == 3));
  pool.audit();
  CHECK_THROWS_AS(open.publish(rising(3, 7)), Error);  // more tokens than it has
}

/// A model of the block contents: what lies in each block, and what each sequence should read. The value at a position
/// depends on all tokens up to it, as keys and values of a model do.
struct PrefixWorld {
  explicit PrefixWorld(const KvBlockPool::Limits& limits)
      : pool(limits), store(limits.blocks * limits.block_tokens, 0) {}

  KvBlockPool pool;
  std::vector<std::uint64_t> store;  // [blocks, block_tokens]
  struct Entry {
    KvSequence sequence;
    std::vector<std::int32_t> ids;
  };
  std::vector<std::unique_ptr<Entry>> open;
  std::set<std::vector<std::int32_t>> published;  // full blocks published since the last eviction
  std::uint64_t evictions = 0;

  static std::uint64_t next(std::uint64_t value, std::int32_t id) {
    return (value + static_cast<std::uint64_t>(id) + 1) * 0x9E3779B97F4A7C15;
  }
  std::size_t place(const Entry& entry, std::size_t position) const {
    const std::size_t size = pool.limits().block_tokens;
    return static_cast<std::size_t>(entry.sequence.blocks()[position / size]) * size + position % size;
  }
  bool full() const { return open.size() == pool.limits().sequences_max; }

  void begin(const std::vector<std::int32_t>& ids) {
    const auto match = pool.match(ids);
    const std::size_t free = pool.blocks_free();
    auto sequence = pool.open(ids);
    RC_ASSERT(sequence.has_value() == !full());
    if (!sequence) return;
    RC_ASSERT(pool.blocks_free() == free - match.idle);
    const std::size_t size = pool.limits().block_tokens;
    RC_ASSERT(sequence->tokens() == match.tokens);
    RC_ASSERT((match.tokens >= match.blocks * size && match.tokens < (match.blocks + 1) * size));
    RC_ASSERT(std::max(sequence->blocks_to_append(ids.size() + 1 - match.tokens), std::size_t{1}) <=
                  pool.blocks_free() ||
              match.tokens == match.blocks * size || ids.size() + 1 > pool.limits().tokens_max);
    if (evictions != pool.evictions()) published.clear();
    const auto most = std::min(ids.size(), pool.limits().tokens_max) / size;
    for (std::size_t blocks = most; blocks > match.blocks; --blocks)
      RC_ASSERT(published.count({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(blocks * size)}) == 0);
    auto known = std::vector(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(sequence->tokens()));
    open.push_back(std::make_unique<Entry>(Entry{std::move(*sequence), std::move(known)}));
  }

  void append(Entry& entry, const std::vector<std::int32_t>& ids) {
    const std::size_t need = entry.sequence.blocks_to_append(ids.size()), free = pool.blocks_free();
    const auto blocks = entry.sequence.blocks();
    const bool sole = !blocks.empty() && pool.references(blocks.back()) == 1;  // a copy then releases the old block
    const auto result = entry.sequence.append(ids.size());
    RC_ASSERT(result.ok == (entry.ids.size() + ids.size() <= pool.limits().tokens_max && need <= free));
    if (!result.ok) {
      RC_ASSERT(pool.blocks_free() == free);
      return;
    }
    const std::size_t size = pool.limits().block_tokens;
    if (result.copy) {
      const auto at = [&](std::int32_t block) { return store.begin() + block * static_cast<std::ptrdiff_t>(size); };
      std::copy_n(at(result.copy->from), size, at(result.copy->to));
    }
    RC_ASSERT(pool.blocks_free() == free - need + (result.copy && sole ? 1 : 0));
    for (const auto id : ids) {
      const std::size_t position = entry.ids.size();
      const std::uint64_t before = position == 0 ? 0 : store[place(entry, position - 1)];
      entry.ids.push_back(id);
      store[place(entry, position)] = next(before, id);
    }
  }

  void publish(Entry& entry, std::size_t tokens, bool ends = false) {
    const auto ids = std::span(std::as_const(entry.ids)).first(std::min(tokens, entry.ids.size()));
    ends ? entry.sequence.publish_end(ids) : entry.sequence.publish(ids);
    if (std::exchange(evictions, pool.evictions()) != evictions) published.clear();
    const std::size_t size = pool.limits().block_tokens;
    for (std::size_t end = size; end <= ids.size(); end += size)
      published.insert({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(end)});
  }

  void check() const {
    pool.audit();
    for (const auto& entry : open) {
      RC_ASSERT(entry->sequence.tokens() == entry->ids.size());
      std::uint64_t value = 0;
      for (std::size_t i = 0; i < entry->ids.size(); ++i) {
        value = next(value, entry->ids[i]);
        RC_ASSERT(store[place(*entry, i)] == value);
      }
    }
  }
};

void act_on_prefixes(PrefixWorld& world) {
  const auto action = *rc::gen::inRange(0, 9);
  const auto some_ids = [] {
    const auto count = *rc::gen::inRange<std::size_t>(0, 14);
    return *rc::gen::container<std::vector<std::int32_t>>(count, rc::gen::inRange<std::int32_t>(0, 2));
  };
  if (action == 0 || world.open.empty()) return world.begin(some_ids());
  const std::size_t which = *rc::gen::inRange<std::size_t>(0, world.open.size());
  auto& entry = *world.open[which];
  const std::size_t amount = *rc::gen::inRange<std::size_t>(0, 14);
  if (action <= 2) {
    world.append(entry, some_ids());
  } else if (action == 3) {
    entry.sequence.trim(amount);
    if (amount < entry.ids.size()) entry.ids.resize(amount);
  } else if (action == 4) {
    auto child = entry.sequence.fork(amount);
    RC_ASSERT(child.has_value() == !world.full());
    auto prefix = entry.ids;
    prefix.resize(std::min(amount, prefix.size()));
    if (child)
      world.open.push_back(
          std::make_unique<PrefixWorld::Entry>(PrefixWorld::Entry{std::move(*child), std::move(prefix)}));
  } else if (action <= 6) {
    world.publish(entry, action == 5 ? amount : entry.ids.size());
  } else {
    if (action == 7) world.publish(entry, entry.ids.size(), true);
    world.open.erase(world.open.begin() + static_cast<std::ptrdiff_t>(which));
  }
}

TEST_CASE("random operations: every sequence reads what it wrote, and no block is lost or owned twice") {
  const bool held = rc::check([] {
    PrefixWorld world({.blocks = *rc::gen::inRange<std::size_t>(1, 24),
                       .block_tokens = *rc::gen::inRange<std::size_t>(1, 6),
                       .sequences_max = *rc::gen::inRange<std::size_t>(1, 6),
                       .tokens_max = *rc::gen::inRange<std::size_t>(1, 40),
                       .min_partial_tokens = *rc::gen::inRange<std::size_t>(1, 6)});
    const int steps = *rc::gen::inRange(1, 80);
    for (int step = 0; step < steps; ++step) {
      act_on_prefixes(world);
      world.check();
    }
    world.open.clear();
    world.pool.audit();
    RC_ASSERT(world.pool.blocks_free() == world.pool.limits().blocks);
    world.pool.evict_idle();
    world.pool.audit();
    RC_ASSERT(world.pool.blocks_free() == world.pool.limits().blocks && world.pool.blocks_idle() == 0);
  });
  CHECK(held);
}

}  // namespace
}  // namespace forge
