// The KV block pool: growth, trim, fork with copy-on-write, retained blocks, and that none of it allocates.
#include "runtime/kv/kv_blocks.h"

#include <catch2/catch.hpp>
#include <vector>

#include "support/error.h"
#include "tests/runtime/allocation_counter.h"

namespace forge {
namespace {

using runtime::KvBlockPool;
using runtime::KvSequence;

TEST_CASE("a sequence grows by blocks and releases them") {
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
    CHECK_FALSE(sequence.append(21).ok);  // 25 positions in total, one more than tokens_max
    CHECK(sequence.append(20).ok);
    auto other = pool.open().value();
    CHECK_FALSE(other.append(9).ok);  // needs three blocks, two are free
    CHECK((other.tokens() == 0 && pool.blocks_free() == 2));
    CHECK(other.append(8).ok);
    CHECK_FALSE(pool.open().has_value());
    pool.audit();
  }
  CHECK((pool.blocks_free() == 8 && pool.sequences_free() == 2));
}

TEST_CASE("a write into a shared block copies it first") {
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
  const auto second = child.append(1);  // now the only owner
  CHECK((second.ok && !second.copy.has_value()));
  CHECK(child.blocks()[1] == shared);
  CHECK(child.blocks()[0] == parent.blocks()[0]);

  auto aligned = parent.fork(4).value();  // full blocks only: nothing to copy
  CHECK_FALSE(aligned.append(1).copy.has_value());
  pool.audit();
}

TEST_CASE("blocks retained outside of sequences survive them") {
  KvBlockPool pool({.blocks = 4, .block_tokens = 2, .sequences_max = 2, .tokens_max = 8});
  std::vector<std::int32_t> held;
  {
    auto sequence = pool.open().value();
    REQUIRE(sequence.append(5).ok);
    for (const std::int32_t block : sequence.blocks().first(2)) {
      pool.retain(block);
      held.push_back(block);
    }
  }
  CHECK(pool.blocks_free() == 2);
  pool.audit(held);
  for (const std::int32_t block : held) pool.release(block);
  CHECK(pool.blocks_free() == 4);
  CHECK_THROWS_AS(pool.release(held[0]), Error);
  CHECK_THROWS_AS(pool.retain(held[0]), Error);
  CHECK_THROWS_AS(KvBlockPool({.blocks = 0, .block_tokens = 2, .sequences_max = 2, .tokens_max = 8}), Error);
}

TEST_CASE("opening, growing, publishing, forking and closing allocate nothing") {
  KvBlockPool pool({.blocks = 64, .block_tokens = 4, .sequences_max = 8, .tokens_max = 128});
  std::vector<std::int32_t> ids(90);
  const auto before = test::allocations();
  for (int round = 0; round < 50; ++round) {
    ids[8] = round;  // some prefixes are found, others are evicted
    auto sequence = pool.open(ids);
    bool grown = sequence->append(90 - sequence->tokens()).ok;
    sequence->publish(ids);
    auto child = sequence->fork(50);
    grown = grown && child->append(30).ok;
    sequence->trim(3);
    if (round % 20 == 0) pool.evict_idle();
    if (!grown) FAIL("the pool is large enough");
  }
  CHECK(test::allocations() == before);
  CHECK(pool.evictions() > 100);
}

}  // namespace
}  // namespace forge
