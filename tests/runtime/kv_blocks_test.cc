#include "runtime/kv_blocks.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>

#include "support/error.h"
#include "tests/runtime/allocation_counter.h"

namespace forge {
namespace {

using runtime::KvBlockPool;
using runtime::KvSequence;

TEST_CASE("a sequence grows by blocks and gives them back") {
  KvBlockPool pool({.blocks = 8, .block_tokens = 4, .sequences_max = 2, .tokens_max = 24});
  {
    auto sequence = pool.open().value();
    CHECK(sequence.append(1).ok);
    CHECK(sequence.blocks().size() == 1);
    CHECK(sequence.append(3).ok);
    CHECK(sequence.blocks().size() == 1);
    CHECK(sequence.blocks_to_append(5) == 2);
    CHECK(sequence.append(5).ok);
    CHECK(sequence.blocks().size() == 3);
    CHECK(pool.blocks_free() == 5);
    sequence.trim(4);
    CHECK((sequence.blocks().size() == 1 && sequence.tokens() == 4 && pool.blocks_free() == 7));
    sequence.trim(100);
    CHECK(sequence.tokens() == 4);
    CHECK_FALSE(sequence.append(21).ok);  // 25 positions
    CHECK(sequence.append(20).ok);
    auto other = pool.open().value();
    CHECK_FALSE(other.append(9).ok);  // three blocks, two are left
    CHECK((other.tokens() == 0 && pool.blocks_free() == 2));
    CHECK(other.append(8).ok);
    CHECK_FALSE(pool.open().has_value());
    pool.audit();
  }
  CHECK((pool.blocks_free() == 8 && pool.sequences_free() == 2));
}

TEST_CASE("whoever writes into a shared block first gets a copy") {
  KvBlockPool pool({.blocks = 8, .block_tokens = 4, .sequences_max = 4, .tokens_max = 32});
  auto parent = pool.open().value();
  REQUIRE(parent.append(6).ok);
  auto child = parent.fork(5).value();
  CHECK(child.tokens() == 5);
  CHECK(pool.references(parent.blocks()[0]) == 2);
  CHECK(pool.blocks_free() == 6);

  const std::int32_t shared = parent.blocks()[1];
  CHECK(parent.blocks_to_append(1) == 1);
  const auto first = parent.append(1);
  REQUIRE(first.copy.has_value());
  CHECK((first.copy->from == shared && first.copy->to == parent.blocks()[1] && parent.blocks()[1] != shared));
  const auto second = child.append(1);  // the only owner now
  CHECK((second.ok && !second.copy.has_value()));
  CHECK(child.blocks()[1] == shared);
  CHECK(child.blocks()[0] == parent.blocks()[0]);

  auto aligned = parent.fork(4).value();  // full blocks only: nothing to copy
  CHECK_FALSE(aligned.append(1).copy.has_value());
  pool.audit();
}

TEST_CASE("blocks held outside of sequences survive them and begin new ones") {
  KvBlockPool pool({.blocks = 4, .block_tokens = 2, .sequences_max = 2, .tokens_max = 8});
  std::vector<std::int32_t> cached;
  {
    auto sequence = pool.open().value();
    REQUIRE(sequence.append(5).ok);
    for (const std::int32_t block : sequence.blocks().first(2)) {
      pool.retain(block);
      cached.push_back(block);
    }
  }
  CHECK(pool.blocks_free() == 2);
  {
    auto reused = pool.open(cached).value();
    CHECK(reused.tokens() == 4);
    CHECK_FALSE(reused.append(1).copy.has_value());
    pool.audit(cached);
  }
  for (const std::int32_t block : cached) pool.release(block);
  CHECK(pool.blocks_free() == 4);
  CHECK_THROWS_AS(pool.release(cached[0]), Error);
  CHECK_THROWS_AS(pool.retain(cached[0]), Error);
  CHECK_THROWS_AS(KvBlockPool({.blocks = 0, .block_tokens = 2, .sequences_max = 2, .tokens_max = 8}), Error);
}

TEST_CASE("opening, growing, forking and closing allocate nothing") {
  KvBlockPool pool({.blocks = 64, .block_tokens = 4, .sequences_max = 8, .tokens_max = 128});
  const auto before = test::allocations();
  for (int round = 0; round < 50; ++round) {
    auto sequence = pool.open();
    bool grown = sequence->append(90).ok;
    auto child = sequence->fork(50);
    grown = grown && child->append(30).ok;
    sequence->trim(3);
    if (!grown) FAIL("the pool is large enough");
  }
  CHECK(test::allocations() == before);
}

/// A model of the contents: what each sequence should read, and what lies in each block.
struct World {
  explicit World(const KvBlockPool::Limits& limits) : pool(limits), store(limits.blocks * limits.block_tokens, -1) {}

  KvBlockPool pool;
  std::vector<int> store;  // [blocks, block_tokens]
  struct Entry {
    KvSequence sequence;
    std::vector<int> expected;
  };
  std::vector<std::unique_ptr<Entry>> open;
  int next = 0;

  std::size_t place(const Entry& entry, std::size_t position) const {
    const std::size_t size = pool.limits().block_tokens;
    return static_cast<std::size_t>(entry.sequence.blocks()[position / size]) * size + position % size;
  }

  void append(Entry& entry, std::size_t tokens) {
    const std::size_t need = entry.sequence.blocks_to_append(tokens), free = pool.blocks_free();
    const auto result = entry.sequence.append(tokens);
    const bool fits = entry.expected.size() + tokens <= pool.limits().tokens_max && need <= free;
    RC_ASSERT(result.ok == fits);
    if (!result.ok) {
      RC_ASSERT(pool.blocks_free() == free);
      return;
    }
    RC_ASSERT(pool.blocks_free() == free - need);
    const std::size_t size = pool.limits().block_tokens;
    if (result.copy)
      std::copy_n(store.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(result.copy->from) * size), size,
                  store.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(result.copy->to) * size));
    for (std::size_t i = 0; i < tokens; ++i) {
      entry.expected.push_back(next);
      store[place(entry, entry.expected.size() - 1)] = next++;
    }
  }

  void check() const {
    pool.audit();
    for (const auto& entry : open) {
      RC_ASSERT(entry->sequence.tokens() == entry->expected.size());
      for (std::size_t i = 0; i < entry->expected.size(); ++i) RC_ASSERT(store[place(*entry, i)] == entry->expected[i]);
    }
  }
};

TEST_CASE("whatever is done, every sequence reads what it wrote, and no block is lost or owned twice") {
  const bool held = rc::check([] {
    World world({.blocks = *rc::gen::inRange<std::size_t>(1, 24),
                 .block_tokens = *rc::gen::inRange<std::size_t>(1, 6),
                 .sequences_max = *rc::gen::inRange<std::size_t>(1, 6),
                 .tokens_max = *rc::gen::inRange<std::size_t>(1, 40)});
    const int steps = *rc::gen::inRange(1, 80);
    for (int step = 0; step < steps; ++step) {
      const auto action = *rc::gen::inRange(0, 6);
      if (action == 0 || world.open.empty()) {
        auto sequence = world.pool.open();
        RC_ASSERT(sequence.has_value() == (world.open.size() < world.pool.limits().sequences_max));
        if (sequence) world.open.push_back(std::make_unique<World::Entry>(World::Entry{std::move(*sequence), {}}));
        continue;
      }
      const std::size_t which = *rc::gen::inRange<std::size_t>(0, world.open.size());
      auto& entry = *world.open[which];
      const std::size_t amount = *rc::gen::inRange<std::size_t>(0, 14);
      if (action <= 2) {
        world.append(entry, amount);
      } else if (action == 3) {
        entry.sequence.trim(amount);
        if (amount < entry.expected.size()) entry.expected.resize(amount);
      } else if (action == 4) {
        auto child = entry.sequence.fork(amount);
        RC_ASSERT(child.has_value() == (world.open.size() < world.pool.limits().sequences_max));
        auto prefix = entry.expected;
        prefix.resize(std::min(amount, prefix.size()));
        if (child)
          world.open.push_back(std::make_unique<World::Entry>(World::Entry{std::move(*child), std::move(prefix)}));
      } else {
        world.open.erase(world.open.begin() + static_cast<std::ptrdiff_t>(which));
      }
      world.check();
    }
    world.open.clear();
    world.pool.audit();
    RC_ASSERT(world.pool.blocks_free() == world.pool.limits().blocks);
  });
  CHECK(held);
}

}  // namespace
}  // namespace forge
