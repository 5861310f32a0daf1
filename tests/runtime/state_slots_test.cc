// Recurrent state in the pool of KV blocks: which slots steps read and write, snapshots, and that every sequence reads
// the state that it wrote, after any order of operations.

#include "runtime/kv/state_slots.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <memory>
#include <numeric>

#include "runtime/kv/kv_blocks.h"
#include "support/error.h"
#include "tests/runtime/allocation_counter.h"

namespace forge {
namespace {

using runtime::KvBlockPool;
using runtime::KvSequence;

KvBlockPool::Limits pool_limits(std::size_t slots, std::size_t sequences = 3) {
  return {.blocks = 24, .block_tokens = 4, .sequences_max = sequences, .tokens_max = 32, .states = {.slots = slots}};
}

std::vector<std::int32_t> counted(std::size_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

/// One step.
void feed(KvSequence& sequence, std::size_t tokens) {
  REQUIRE(sequence.append(tokens).ok);
  sequence.release_outside_window();
}

TEST_CASE("a step writes in place until a snapshot or another sequence needs the slot") {
  KvBlockPool pool(pool_limits(4));
  const auto ids = counted(10);
  auto sequence = pool.open().value();
  REQUIRE(sequence.append(6).ok);
  const auto first = sequence.state_write();
  CHECK((sequence.state_read() == -1 && first >= 0));
  REQUIRE(sequence.append(1).ok);
  CHECK((sequence.state_read() == first && sequence.state_write() == first));
  CHECK(sequence.keep_state(counted(7)));
  REQUIRE(sequence.append(1).ok);
  const auto second = sequence.state_write();
  CHECK((sequence.state_read() == first && second != first));
  sequence.release_outside_window();
  auto other = sequence.fork(8).value();
  REQUIRE(other.append(1).ok);
  CHECK((other.state_read() == second && other.state_write() != second));
  REQUIRE(sequence.append(1).ok);  // the other one's step still reads its slot
  CHECK((sequence.state_read() == second && sequence.state_write() != second));
  CHECK(sequence.state_write() != other.state_write());
  pool.audit();
}

TEST_CASE("a prefix is reused up to its deepest snapshot, also within a block") {
  KvBlockPool pool(pool_limits(6));
  const auto ids = counted(20);
  {
    auto sequence = pool.open().value();
    feed(sequence, 5);
    CHECK(sequence.keep_state(std::span(ids).first(5)));
    feed(sequence, 6);
    CHECK(sequence.keep_state(std::span(ids).first(11)));
    feed(sequence, 7);
    sequence.publish(std::span(ids).first(18));
  }
  CHECK((pool.states()->snapshots() == 2 && pool.states()->slots_free() == 6));
  CHECK(pool.blocks_free() == 24);
  const auto found = pool.match(ids);
  CHECK((found.tokens == 11 && found.blocks == 2 && found.indexed == 16 && found.idle == 3));
  auto other = ids;
  other[10] = 99;  // the tail of the deeper one differs
  CHECK(pool.match(other).tokens == 5);
  CHECK(pool.match(std::span(ids).first(10)).tokens == 5);
  CHECK(pool.match(ids, 7).tokens == 0);
  auto again = pool.open(ids).value();
  CHECK(again.tokens() == 11);
  auto twice = pool.open(ids).value();
  REQUIRE((again.append(1).ok && twice.append(1).ok));
  CHECK((again.state_read() == twice.state_read() && again.state_write() != twice.state_write()));
  CHECK(again.blocks()[2] != twice.blocks()[2]);
  CHECK(pool.states()->hits() == 2);
  pool.audit();
}

TEST_CASE("the slot of the least recently used snapshot is taken, and the last resort is a sequence's own") {
  KvBlockPool pool(pool_limits(3, 2));
  for (std::int32_t first : {100, 200, 300}) {
    auto sequence = pool.open().value();
    feed(sequence, 4);
    CHECK(sequence.keep_state(counted(4, first)));
  }
  CHECK((pool.match(counted(6, 100)).tokens == 4 && pool.states()->evictions() == 0));
  (void)pool.open(counted(6, 100));  // used again
  auto sequence = pool.open().value();
  feed(sequence, 4);
  CHECK(pool.states()->evictions() == 1);
  CHECK((pool.match(counted(6, 200)).tokens == 0 && pool.match(counted(6, 100)).tokens == 4));
  auto held = pool.open(counted(6, 100)).value();
  CHECK(sequence.keep_state(counted(4, 400)));
  feed(sequence, 1);  // takes 300's
  CHECK((pool.match(counted(6, 300)).tokens == 0 && pool.match(counted(6, 400)).tokens == 4));
  feed(held, 1);  // takes 400's
  CHECK((pool.match(counted(6, 400)).tokens == 0 && pool.match(counted(6, 100)).tokens == 4));
  feed(held, 1);
  CHECK(held.keep_state([] {
    auto ids = counted(4, 100);
    ids.insert(ids.end(), {7, 8});
    return ids;
  }()));
  pool.audit();
}

TEST_CASE("trim and fork go back to the nearest snapshot, whose tokens are then there") {
  KvBlockPool pool(pool_limits(8));
  const auto ids = counted(16);
  auto sequence = pool.open().value();
  for (const std::size_t tokens : {3, 6, 9}) {
    feed(sequence, 3);
    CHECK(sequence.keep_state(std::span(ids).first(tokens)));
  }
  feed(sequence, 4);
  CHECK(sequence.state_kept() == 9);
  auto at_end = sequence.fork(13).value();
  CHECK((at_end.tokens() == 13 && at_end.state_write() == sequence.state_write()));
  const auto back = sequence.fork(8);
  CHECK((back->tokens() == 6 && back->state_kept() == 6));
  CHECK(sequence.trim(13) == 13);
  CHECK(sequence.trim(12) == 9);
  CHECK(sequence.trim(9) == 9);
  CHECK(sequence.trim(8) == 6);
  REQUIRE(sequence.append(1).ok);  // into a block that the snapshot at 9 does not need: block 1 is whole there
  CHECK(sequence.trim(2) == 0);
  CHECK(sequence.state_write() == -1);
  pool.audit();
}

TEST_CASE("positions that a snapshot needs are not written over") {
  KvBlockPool pool(pool_limits(8));
  const auto ids = counted(8);
  auto sequence = pool.open().value();
  feed(sequence, 1);
  CHECK(sequence.keep_state(std::span(ids).first(1)));
  feed(sequence, 2);
  CHECK(sequence.keep_state(std::span(ids).first(3)));
  const auto block = sequence.blocks()[0];
  CHECK_FALSE(sequence.append(1).copy);  // position 3 is behind both
  sequence.release_outside_window();
  CHECK(sequence.trim(2) == 1);
  const auto grown = sequence.append(1);
  REQUIRE(grown.copy);
  CHECK((grown.copy->from == block && sequence.blocks()[0] != block));
  CHECK(pool.match(ids).tokens == 3);
  pool.audit();
}

TEST_CASE("evicting a block forgets the snapshots that need it, and evict_idle all") {
  KvBlockPool pool(pool_limits(8));
  const auto ids = counted(30);
  {
    auto sequence = pool.open().value();
    feed(sequence, 6);
    CHECK(sequence.keep_state(std::span(ids).first(6)));
    feed(sequence, 4);
    CHECK(sequence.keep_state(std::span(ids).first(10)));
  }
  CHECK((pool.blocks_idle() == 3 && pool.match(ids).tokens == 10));
  auto other = pool.open().value(), more = pool.open().value(), third = pool.open().value();
  feed(other, 32);
  feed(more, 32);
  feed(third, 22);  // 22 of 24 blocks: one of those above is needed, the last of the longer one
  third.trim(0);
  CHECK(pool.match(std::span(ids).first(12)).tokens == 6);
  pool.evict_idle();
  CHECK((pool.match(ids).tokens == 0 && pool.states()->snapshots() == 0));
  CHECK(pool.states()->evictions() == 1);
  pool.audit();
}

TEST_CASE("limits: a slot for each sequence; without snapshots nothing is kept") {
  CHECK_THROWS_AS(KvBlockPool(pool_limits(2, 3)), Error);
  auto limits = pool_limits(3);
  limits.states.snapshots = false;
  KvBlockPool pool(limits);
  auto sequence = pool.open().value();
  feed(sequence, 4);
  CHECK_FALSE(sequence.keep_state(counted(4)));
  CHECK_THROWS_AS(sequence.keep_state(counted(3)), Error);
  pool.retain_state(sequence.state_write());
  const std::int32_t held = sequence.state_write();
  pool.audit({}, std::span(&held, 1));
  CHECK_THROWS_AS(pool.audit(), Error);
  feed(sequence, 1);
  CHECK(sequence.state_write() != held);
  pool.release_state(held);
  CHECK_THROWS_AS(pool.release_state(held), Error);
  pool.audit();
}

TEST_CASE("steps and snapshots do not allocate") {
  KvBlockPool pool(pool_limits(5));
  const auto ids = counted(32);
  const auto before = test::allocations();
  for (int round = 0; round < 50; ++round) {
    auto sequence = pool.open(std::span(ids).first(static_cast<std::size_t>(round % 20))).value();
    for (std::size_t tokens = sequence.tokens() + 1; tokens <= 30; ++tokens) {
      (void)sequence.append(1);
      sequence.release_outside_window();
      if (tokens % 3 == 0) (void)sequence.keep_state(std::span(ids).first(tokens));
    }
  }
  CHECK(test::allocations() == before);
}

/// A model of contents: a number for each position in its block, and one for each slot, which depend on all tokens.
struct StateWorld {
  explicit StateWorld(const KvBlockPool::Limits& limits)
      : pool(limits), store(limits.blocks * limits.block_tokens), states(limits.states.slots) {}

  KvBlockPool pool;
  std::vector<std::uint64_t> store, states;
  struct Entry {
    KvSequence sequence;
    std::vector<std::int32_t> ids;
  };
  std::vector<std::unique_ptr<Entry>> open;
  std::vector<std::int32_t> kept;  // what a snapshot was kept of, some time ago
  std::uint64_t hits = 0;

  static std::uint64_t next(std::uint64_t value, std::int32_t id) {
    return (value + static_cast<std::uint64_t>(id) + 1) * 0x9E3779B97F4A7C15;
  }
  static std::uint64_t after(std::span<const std::int32_t> ids) {
    return std::accumulate(ids.begin(), ids.end(), std::uint64_t{0}, next);
  }
  std::uint64_t& at(const Entry& entry, std::size_t position) {
    const std::size_t size = pool.limits().block_tokens;
    return store[static_cast<std::size_t>(entry.sequence.blocks()[position / size]) * size + position % size];
  }

  void begin(const std::vector<std::int32_t>& ids) {
    const auto match = pool.match(ids);
    auto sequence = pool.open(ids);
    RC_ASSERT(sequence.has_value() == (open.size() < pool.limits().sequences_max));
    if (!sequence) return;
    RC_ASSERT(sequence->tokens() == match.tokens);
    hits += match.tokens > 0 ? 1 : 0;
    auto known = std::vector(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(sequence->tokens()));
    open.push_back(std::make_unique<Entry>(Entry{std::move(*sequence), std::move(known)}));
  }

  /// A step of the sequences from `first` on; each feeds `ids`.
  void step(std::size_t first, std::size_t count, const std::vector<std::int32_t>& ids) {
    std::vector<Entry*> parts;
    for (std::size_t i = 0; i < count && i < open.size(); ++i) {
      auto& entry = *open[(first + i) % open.size()];
      const bool room = entry.ids.size() + ids.size() <= pool.limits().tokens_max &&
                        entry.sequence.blocks_to_append(ids.size()) <= pool.blocks_free();
      const bool slot = entry.sequence.has_state_to_append();
      RC_ASSERT(slot || !parts.empty());  // the first of a step has a slot
      const auto grown = entry.sequence.append(ids.size());
      RC_ASSERT(grown.ok == (room && slot));
      if (!grown.ok) continue;
      const auto size = static_cast<std::ptrdiff_t>(pool.limits().block_tokens);
      if (grown.copy) std::copy_n(store.begin() + grown.copy->from * size, size, store.begin() + grown.copy->to * size);
      parts.push_back(&entry);
    }
    for (const auto* part : parts)
      for (const auto* other : parts)
        RC_ASSERT(part == other || (part->sequence.state_write() != other->sequence.state_write() &&
                                    part->sequence.state_write() != other->sequence.state_read()));
    for (auto* part : parts) {
      const auto read = part->sequence.state_read();
      auto value = read < 0 ? 0 : states[static_cast<std::size_t>(read)];
      for (const auto id : ids) {
        value = next(value, id);
        part->ids.push_back(id);
        at(*part, part->ids.size() - 1) = value;
      }
      states[static_cast<std::size_t>(part->sequence.state_write())] = value;
    }
    pool.audit();
    for (auto* part : parts) part->sequence.release_outside_window();
  }

  void check() {
    pool.audit();
    for (const auto& entry : open) {
      RC_ASSERT(entry->sequence.tokens() == entry->ids.size());
      for (std::size_t i = 0; i < entry->ids.size(); ++i)
        RC_ASSERT(at(*entry, i) == after(std::span(entry->ids).first(i + 1)));
      if (!entry->ids.empty())
        RC_ASSERT(states[static_cast<std::size_t>(entry->sequence.state_write())] == after(entry->ids));
    }
  }
};

void act(StateWorld& world) {
  const auto action = *rc::gen::inRange(0, 12);
  const auto some_ids = [](std::size_t least) {
    const auto count = *rc::gen::inRange<std::size_t>(least, 14);
    const auto ids = *rc::gen::inRange(0, 4) > 0 ? 1 : 2;  // mostly equal ones, so that prefixes are found
    return *rc::gen::container<std::vector<std::int32_t>>(count, rc::gen::inRange<std::int32_t>(0, ids));
  };
  if (action == 0 || action >= 10 || world.open.empty()) {
    auto ids = action >= 10 ? world.kept : std::vector<std::int32_t>{};
    for (const auto id : some_ids(0)) ids.push_back(id);
    return world.begin(ids);
  }
  const std::size_t which = *rc::gen::inRange<std::size_t>(0, world.open.size());
  auto& entry = *world.open[which];
  const std::size_t amount = *rc::gen::inRange<std::size_t>(0, 14);
  if (action <= 3) {
    world.step(which, 1 + amount % 4, some_ids(1));
  } else if (action == 4) {
    const auto left = entry.sequence.trim(amount);
    RC_ASSERT(left <= std::max(amount, entry.ids.size()));
    entry.ids.resize(std::min(left, entry.ids.size()));
  } else if (action == 5) {
    auto child = entry.sequence.fork(amount);
    if (!child) return;
    auto prefix = entry.ids;
    prefix.resize(child->tokens());
    world.open.push_back(std::make_unique<StateWorld::Entry>(StateWorld::Entry{std::move(*child), std::move(prefix)}));
  } else if (action <= 7) {
    RC_ASSERT(entry.sequence.keep_state(entry.ids) == !entry.ids.empty());
    world.kept = entry.ids;
  } else {
    world.open.erase(world.open.begin() + static_cast<std::ptrdiff_t>(which));
  }
}

TEST_CASE("random operations: every sequence has the state after its tokens, and no slot is lost or owned twice") {
  std::uint64_t hits = 0, evictions = 0;
  const bool held = rc::check([&] {
    const auto sequences = *rc::gen::inRange<std::size_t>(1, 6);
    StateWorld world({.blocks = *rc::gen::inRange<std::size_t>(1, 24),
                      .block_tokens = *rc::gen::inRange<std::size_t>(1, 6),
                      .sequences_max = sequences,
                      .tokens_max = *rc::gen::inRange<std::size_t>(1, 40),
                      .states = {.slots = sequences + *rc::gen::inRange<std::size_t>(0, 8)}});
    const int steps = *rc::gen::inRange(1, 80);
    for (int step = 0; step < steps; ++step) {
      act(world);
      world.check();
    }
    hits += world.hits;
    evictions += world.pool.states()->evictions();
    world.open.clear();
    world.pool.audit();
    RC_ASSERT(world.pool.blocks_free() == world.pool.limits().blocks);
    RC_ASSERT(world.pool.states()->slots_free() == world.pool.limits().states.slots);
    world.pool.evict_idle();
    world.pool.audit();
    RC_ASSERT(world.pool.blocks_idle() == 0 && world.pool.states()->snapshots() == 0);
  });
  CHECK(held);
  CHECK(hits > 20);
  CHECK(evictions > 20);
}

}  // namespace
}  // namespace forge
