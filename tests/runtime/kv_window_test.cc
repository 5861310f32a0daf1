// KV groups with a sliding window: how many blocks they hold, and that every sequence reads what it wrote as far back
// as the window reaches, after any order of operations.

#include "runtime/kv/kv_window.h"

#include <rapidcheck.h>
#include <catch2/catch.hpp>
#include <memory>

#include "runtime/kv/kv_blocks.h"
#include "support/error.h"

namespace forge {
namespace {

using runtime::kNoBlock;
using runtime::KvBlockPool;
using runtime::KvSequence;

constexpr std::size_t kGroup = 1;

KvBlockPool::Limits limits_of(std::size_t window, std::size_t window_blocks, std::size_t blocks = 32) {
  return {.blocks = blocks,
          .block_tokens = 4,
          .sequences_max = 3,
          .tokens_max = 64,
          .windows = {{.group = kGroup, .room = {.blocks = window_blocks, .window = window}}}};
}

std::size_t held(const KvSequence& sequence) {
  return static_cast<std::size_t>(
      std::ranges::count_if(sequence.table(kGroup), [](std::int32_t block) { return block != kNoBlock; }));
}

TEST_CASE("number of blocks that a window of w positions touches") {
  // Compared with every alignment of the window to the blocks.
  for (std::size_t tokens : {1, 2, 5, 32})
    for (std::size_t window = 1; window < 140; ++window) {
      std::size_t most = 0;
      for (std::size_t first = 0; first < tokens; ++first)
        most = std::max(most, (first + window - 1) / tokens - first / tokens + 1);
      CHECK(runtime::kv_window_blocks(window, tokens) == most);
    }
  CHECK(runtime::kv_window_blocks(512, 32) == 512 / 32 + 1);
}

TEST_CASE("decoding holds at most the window's blocks, prefill in addition those of the step") {
  KvBlockPool pool(limits_of(9, 8));
  auto sequence = pool.open().value();
  for (std::size_t tokens = 1; tokens <= 30; ++tokens) {
    sequence.release_outside_window();
    REQUIRE(sequence.append(1).ok);
    CHECK(held(sequence) <= runtime::kv_window_blocks(9, 4));
    CHECK(sequence.table(kGroup).size() == sequence.blocks().size());
  }
  REQUIRE(sequence.append(17).ok);  // up to position 46; the first new token sees 22 and later: blocks 5 to 11
  CHECK(held(sequence) == 7);
  sequence.release_outside_window();
  CHECK(held(sequence) == 3);
  CHECK(sequence.table(kGroup)[8] == kNoBlock);
  CHECK(sequence.blocks()[0] != kNoBlock);
  CHECK_FALSE(sequence.append(33).ok);  // longer than the context
  pool.audit();
}

TEST_CASE("trim and fork empty a sequence only if the window of the new end was released") {
  KvBlockPool pool(limits_of(6, 12));
  auto sequence = pool.open().value();
  REQUIRE(sequence.append(23).ok);
  sequence.release_outside_window();  // position 23 sees 18 and later: blocks from 4 on
  CHECK(sequence.fork(20).value().tokens() == 0);
  CHECK(sequence.fork(21).value().tokens() == 21);
  CHECK(sequence.trim(22) == 22);
  CHECK(sequence.trim(21) == 21);
  CHECK(sequence.append(1).ok);
  CHECK(sequence.trim(20) == 0);
  CHECK((sequence.tokens() == 0 && held(sequence) == 0 && sequence.blocks().empty()));
  CHECK(sequence.append(12).ok);
  CHECK(sequence.trim(5) == 5);  // nothing was released
  pool.audit();
}

TEST_CASE("a write into a shared block of a window copies it too") {
  KvBlockPool pool(limits_of(6, 12));
  auto parent = pool.open().value();
  REQUIRE(parent.append(14).ok);
  auto child = parent.fork(14).value();
  CHECK(std::ranges::equal(parent.table(kGroup), child.table(kGroup)));
  const auto grown = child.append(1);
  REQUIRE((grown.copy && grown.window_copies.size() == 1));
  CHECK(grown.window_copies[0].group == kGroup);
  CHECK(grown.window_copies[0].from == parent.table(kGroup)[3]);
  CHECK(grown.window_copies[0].to == child.table(kGroup)[3]);
  CHECK(parent.append(1).window_copies.empty());
  pool.audit();
}

TEST_CASE("a prefix is found only if the blocks of its last window are cached") {
  KvBlockPool pool(limits_of(6, 8));
  std::vector<std::int32_t> ids(24);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  {
    auto first = pool.open().value();
    REQUIRE(first.append(24).ok);
    first.publish(ids);
    first.release_outside_window();
  }
  CHECK(pool.match(ids).blocks == 6);
  {
    auto again = pool.open(ids).value();
    CHECK(again.tokens() == 24);
    CHECK(held(again) == 2);  // position 24 sees 19 and later
    auto other = pool.open().value();
    REQUIRE(other.append(16).ok);  // takes the free blocks and the two least recently used idle ones
    CHECK(pool.match(ids).blocks == 6);
    CHECK(pool.match(std::span(ids).first(11)).blocks == 0);  // block 0 or 1 was evicted
    pool.audit();
  }
  pool.evict_idle();
  CHECK(pool.match(ids).blocks == 0);
  pool.audit();
}

TEST_CASE("a decode loop reuses the window's blocks as a ring, and the sequence can go on afterwards") {
  for (std::size_t fed = 1; fed < 20; ++fed)
    for (std::size_t taken = 0; taken <= 30; ++taken) {
      KvBlockPool pool(limits_of(6, 8));
      auto sequence = pool.open().value();
      REQUIRE(sequence.append(fed).ok);
      sequence.release_outside_window();
      REQUIRE(sequence.append_ring(30));
      CHECK(sequence.tokens() == fed + 30);
      std::vector<std::size_t> last(8, 64);  // last position written in each block
      const auto table = std::vector(sequence.table(kGroup).begin(), sequence.table(kGroup).end());
      const std::size_t ahead = std::min<std::size_t>(taken + 4, 30);  // steps in flight when the loop ended
      for (std::size_t p = fed < 6 ? 0 : fed - 5; p < fed + ahead; ++p)
        last[static_cast<std::size_t>(table[p / 4])] = p / 4;
      const std::size_t left = fed + taken;
      REQUIRE(sequence.trim(left) == left);
      pool.audit();
      for (std::size_t p = left < 6 ? 0 : left - 5; p < left; ++p) {
        const auto block = sequence.table(kGroup)[p / 4];
        REQUIRE(block != kNoBlock);
        CHECK((block == table[p / 4] && last[static_cast<std::size_t>(block)] == p / 4));
      }
      sequence.release_outside_window();
      CHECK(held(sequence) <= 3);
      pool.audit();
      for (int more = 0; more < 4; ++more) {
        CHECK(sequence.append(1).ok);
        sequence.release_outside_window();
        pool.audit();
      }
    }
}

TEST_CASE("after a decode loop no trim returns to positions that the loop has overwritten") {
  for (std::size_t fed = 1; fed < 20; ++fed)
    for (const std::size_t taken : {std::size_t{0}, std::size_t{7}, std::size_t{29}, std::size_t{30}})
      for (std::size_t back = 1; back <= fed; ++back) {
        KvBlockPool pool(limits_of(6, 8));
        auto sequence = pool.open().value();
        REQUIRE(sequence.append(fed).ok);
        REQUIRE(sequence.append_ring(30));
        std::vector<std::size_t> last(8, 64);
        const auto table = std::vector(sequence.table(kGroup).begin(), sequence.table(kGroup).end());
        const std::size_t ahead = std::min<std::size_t>(taken + 4, 30);
        for (std::size_t p = 0; p < fed + ahead; ++p) last[static_cast<std::size_t>(table[p / 4])] = p / 4;
        REQUIRE(sequence.trim(fed + taken) == fed + taken);
        const auto kept = sequence.trim(back);
        pool.audit();
        CHECK((kept == 0 || kept == back));
        for (std::size_t p = kept < 6 ? 0 : kept - 5; p < kept; ++p) {
          const auto block = sequence.table(kGroup)[p / 4];
          REQUIRE(block != kNoBlock);
          CHECK(last[static_cast<std::size_t>(block)] == p / 4);
        }
      }
}

/// A model of the window pools: sequences, which position lies in which block, and what each sequence must read.
struct WindowWorld {
  struct Entry {
    KvSequence sequence;
    std::vector<std::int32_t> ids;
  };
  explicit WindowWorld(const KvBlockPool::Limits& limits) : pool(limits) {
    for (const auto& window : limits.windows) stores.emplace_back(window.room.blocks * limits.block_tokens);
  }

  KvBlockPool pool;
  std::vector<std::vector<std::uint64_t>> stores;  ///< per window: [blocks, block_tokens]
  std::vector<std::unique_ptr<Entry>> open;

  std::uint64_t& at(const Entry& entry, std::size_t window, std::size_t position) {
    const std::size_t size = pool.limits().block_tokens;
    const auto block = entry.sequence.table(window + 1)[position / size];
    RC_ASSERT(block != kNoBlock);
    return stores[window][static_cast<std::size_t>(block) * size + position % size];
  }

  void append(Entry& entry, const std::vector<std::int32_t>& ids) {
    const auto grown = entry.sequence.append(ids.size());
    if (!grown.ok) return;
    const auto size = static_cast<std::ptrdiff_t>(pool.limits().block_tokens);
    for (const auto& copy : grown.window_copies) {
      auto& store = stores[static_cast<std::size_t>(copy.group) - 1];
      std::copy_n(store.begin() + copy.from * size, size, store.begin() + copy.to * size);
    }
    for (const auto id : ids) {
      entry.ids.push_back(id);
      std::uint64_t value = 0;
      for (const auto each : entry.ids) value = (value + static_cast<std::uint64_t>(each) + 1) * 0x9E3779B97F4A7C15;
      for (std::size_t w = 0; w < stores.size(); ++w) at(entry, w, entry.ids.size() - 1) = value;
    }
  }

  void check() {
    pool.audit();
    for (const auto& entry : open) {
      RC_ASSERT(entry->sequence.tokens() == entry->ids.size());
      std::uint64_t value = 0;
      for (std::size_t p = 0; p < entry->ids.size(); ++p) {
        value = (value + static_cast<std::uint64_t>(entry->ids[p]) + 1) * 0x9E3779B97F4A7C15;
        for (std::size_t w = 0; w < stores.size(); ++w)
          if (p + pool.limits().windows[w].room.window > entry->ids.size()) RC_ASSERT(at(*entry, w, p) == value);
      }
    }
  }
};

void act_on_windows(WindowWorld& world) {
  const auto some_ids = [](std::size_t most) {
    const auto count = *rc::gen::inRange<std::size_t>(0, most);
    return *rc::gen::container<std::vector<std::int32_t>>(count, rc::gen::inRange<std::int32_t>(0, 2));
  };
  const auto action = *rc::gen::inRange(0, 10);
  if (action == 0 || world.open.empty()) {
    auto ids = some_ids(20);
    auto sequence = world.pool.open(ids);
    if (!sequence) return;
    ids.resize(sequence->tokens());
    world.open.push_back(
        std::make_unique<WindowWorld::Entry>(WindowWorld::Entry{std::move(*sequence), std::move(ids)}));
    return;
  }
  const std::size_t which = *rc::gen::inRange<std::size_t>(0, world.open.size());
  auto& entry = *world.open[which];
  const std::size_t amount = *rc::gen::inRange<std::size_t>(0, 20);
  if (action <= 3) {
    world.append(entry, some_ids(14));
  } else if (action == 4) {
    const std::size_t left = entry.sequence.trim(amount);
    RC_ASSERT(left == 0 || left == std::min(amount, entry.ids.size()));
    entry.ids.resize(left);
  } else if (action == 5) {
    if (auto child = entry.sequence.fork(amount)) {
      auto ids = entry.ids;
      ids.resize(child->tokens());
      world.open.push_back(std::make_unique<WindowWorld::Entry>(WindowWorld::Entry{std::move(*child), std::move(ids)}));
    }
  } else if (action == 6) {
    entry.sequence.publish(std::span(std::as_const(entry.ids)).first(std::min(amount, entry.ids.size())));
  } else if (action <= 8) {
    entry.sequence.publish(entry.ids);
    entry.sequence.release_outside_window();
  } else {
    world.open.erase(world.open.begin() + static_cast<std::ptrdiff_t>(which));
  }
}

TEST_CASE("random operations: every sequence reads what it wrote as far back as its windows reach") {
  const bool kept = rc::check([] {
    KvBlockPool::Limits limits{.blocks = *rc::gen::inRange<std::size_t>(1, 24),
                               .block_tokens = *rc::gen::inRange<std::size_t>(1, 6),
                               .sequences_max = *rc::gen::inRange<std::size_t>(1, 6),
                               .tokens_max = *rc::gen::inRange<std::size_t>(1, 40)};
    for (std::int32_t group = 1; group <= 2; ++group)
      limits.windows.push_back(
          {.group = group,
           .room = {.blocks = *rc::gen::inRange<std::size_t>(1, 24), .window = *rc::gen::inRange<std::size_t>(1, 20)}});
    WindowWorld world(limits);
    const int steps = *rc::gen::inRange(1, 80);
    for (int step = 0; step < steps; ++step) {
      act_on_windows(world);
      world.check();
    }
    world.open.clear();
    world.pool.evict_idle();
    world.pool.audit();
    RC_ASSERT(world.pool.blocks_free() == world.pool.limits().blocks);
  });
  CHECK(kept);
}

}  // namespace
}  // namespace forge
