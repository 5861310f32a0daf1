// Arena packing as a pure function: no overlaps on random intervals, and the lower bound (the largest live set) is
// reached on traces like a transformer's.

#include "passes/schedule/pack_arena.h"

#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <random>

#include "support/error.h"

namespace forge::passes {
namespace {

bool overlap_in_time(const Interval& a, const Interval& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// True if no two buffers with overlapping lifetimes share a byte, offsets are aligned, and the arena holds all
/// buffers.
bool sound(const std::vector<Interval>& intervals, const Packing& packing, std::int64_t alignment) {
  if (packing.offsets.size() != intervals.size() || packing.bytes < packing.bound_bytes) return false;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    if (packing.offsets[i] < 0 || packing.offsets[i] % alignment != 0) return false;
    if (packing.offsets[i] + intervals[i].bytes > packing.bytes) return false;
    for (std::size_t j = 0; j < i; ++j) {
      const bool apart = packing.offsets[i] + intervals[i].bytes <= packing.offsets[j] ||
                         packing.offsets[j] + intervals[j].bytes <= packing.offsets[i];
      const bool empty = intervals[i].bytes == 0 || intervals[j].bytes == 0;
      if (!apart && !empty && overlap_in_time(intervals[i], intervals[j])) return false;
    }
  }
  return true;
}

/// The buffers of `layers` layers with five steps each, as the pipeline produces them.
std::vector<Interval> transformer(std::int32_t layers, std::int64_t tokens, std::int64_t dim, std::int64_t kv,
                                  std::int64_t ff, std::int64_t scratch) {
  std::vector<Interval> out;
  const std::int32_t last = 5 * layers + 1;
  out.push_back({0, last, tokens * 64 * 4});  // RoPE table
  for (std::int32_t l = 0; l < layers; ++l) {
    const std::int32_t s = 1 + 5 * l;
    out.push_back({s - 1, s + 2, tokens * dim * 4});      // residual input
    out.push_back({s - 1, s, tokens * dim * 5 / 4});      // quantised x*w
    out.push_back({s - 1, s, tokens * (dim / 32) * 4});   // squares
    out.push_back({s, s + 1, tokens * dim * 4});          // q
    out.push_back({s, s, tokens * kv * 4});               // scratch
    out.push_back({s + 1, s + 1, scratch});               // partial results of attention
    out.push_back({s + 1, s + 2, tokens * dim * 5 / 4});  // result of attention, quantised
    out.push_back({s + 2, s + 4, tokens * dim * 4});      // residual
    out.push_back({s + 2, s + 3, tokens * dim * 5 / 4});  // quantised x*w
    out.push_back({s + 2, s + 3, tokens * (dim / 32) * 4});
    out.push_back({s + 3, s + 4, tokens * ff * 5 / 4});
  }
  return out;
}

TEST_CASE("pack_arena: random intervals never overlap, stay above the bound and are deterministic", "[pack_arena]") {
  REQUIRE(rc::check("sound and deterministic", [] {
    const auto count = *rc::gen::inRange<std::size_t>(0, 40);
    const std::int64_t alignment = std::int64_t{1} << *rc::gen::inRange(0, 9);
    std::vector<Interval> intervals;
    for (std::size_t i = 0; i < count; ++i) {
      const auto first = *rc::gen::inRange<std::int32_t>(0, 30);
      intervals.push_back(
          {first, first + *rc::gen::inRange<std::int32_t>(0, 12), *rc::gen::inRange<std::int64_t>(0, 5000)});
    }
    const Packing packing = pack_arena(intervals, alignment);
    RC_ASSERT(sound(intervals, packing, alignment));
    RC_ASSERT(pack_arena(intervals, alignment).offsets == packing.offsets);
  }));
}

TEST_CASE("pack_arena: transformer traces reach the bound", "[pack_arena]") {
  for (const std::int64_t tokens : {1, 4, 512})
    for (const std::int64_t scratch : {0, 70'000, 9'000'000}) {
      const auto intervals = transformer(30, tokens, 576, 192, 1536, scratch);
      const Packing packing = pack_arena(intervals, 64);
      REQUIRE(sound(intervals, packing, 64));
      CHECK(packing.bytes == packing.bound_bytes);
    }
  const auto large = transformer(80, 512, 8192, 1024, 28672, 1 << 20);
  CHECK(pack_arena(large, 256).bytes == pack_arena(large, 256).bound_bytes);
}

TEST_CASE("pack_arena: hard random cases stay within 10 % of the bound", "[pack_arena]") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 random(seed);
    std::vector<Interval> intervals;
    for (int i = 0; i < 200; ++i) {
      const auto first = static_cast<std::int32_t>(random() % 100);
      const auto length = static_cast<std::int32_t>(random() % (seed % 2 == 0 ? 10 : 60));
      const auto bytes = static_cast<std::int64_t>(random() % 3 == 0 ? random() % 100'000 : random() % 4'000);
      intervals.push_back({first, first + length, bytes});
    }
    const Packing packing = pack_arena(intervals, 64);
    REQUIRE(sound(intervals, packing, 64));
    INFO("seed " << seed << ": " << packing.bytes << " over " << packing.bound_bytes);
    CHECK(double(packing.bytes) <= 1.1 * double(packing.bound_bytes));
    if (seed == 4 || seed == 10) CHECK(packing.bytes == packing.bound_bytes);  // reached by the local search
  }
}

TEST_CASE("pack_arena: layers that fit only when every second one is mirrored reach the bound", "[pack_arena]") {
  // Buffers of 1, 2, 5, 10, 17, 26 and 37 units per layer; every greedy order wastes 5 %.
  for (const std::int32_t layers : {2, 30, 126}) {
    std::vector<Interval> intervals;
    for (std::int32_t l = 0; l < layers; ++l)
      for (std::int32_t k = 0; k < 7; ++k)
        intervals.push_back({5 * l + k % 5, 5 * l + k % 5 + 1 + k % 3, 4096 * (1 + k * k)});
    const Packing packing = pack_arena(intervals, 64);
    REQUIRE(sound(intervals, packing, 64));
    CHECK(packing.bytes == packing.bound_bytes);
  }
}

TEST_CASE("pack_arena: the search finds packings that no greedy order finds", "[pack_arena]") {
  // Greedy orders by size and by length leave a gap here. A packing without gaps exists by construction: a rectangle of
  // 64 units x 64 steps is cut into smaller ones.
  std::mt19937 random(5);
  std::vector<Interval> rectangles{{0, 63, 64 * 64}};
  for (int cut = 0; cut < 40; ++cut) {
    const std::size_t i = random() % rectangles.size();
    Interval& r = rectangles[i];
    if (random() % 2 == 0 && r.last > r.first) {
      const auto middle = r.first + static_cast<std::int32_t>(random() % static_cast<unsigned>(r.last - r.first));
      rectangles.push_back({middle + 1, r.last, r.bytes});
      rectangles[i].last = middle;
    } else if (r.bytes >= 128) {
      const std::int64_t low = 64 * (1 + std::int64_t(random()) % (r.bytes / 64 - 1));
      rectangles.push_back({r.first, r.last, r.bytes - low});
      rectangles[i].bytes = low;
    }
  }
  const Packing packing = pack_arena(rectangles, 64);
  REQUIRE(packing.bound_bytes == 64 * 64);
  CHECK(packing.bytes == packing.bound_bytes);
}

TEST_CASE("pack_arena: no buffers, empty buffers and invalid input", "[pack_arena]") {
  CHECK(pack_arena({}, 64).bytes == 0);
  const std::vector<Interval> empty{{0, 3, 0}, {1, 2, 0}, {0, 5, 10}};
  CHECK(pack_arena(empty, 64).bytes == 64);
  const std::vector<Interval> one{{0, 0, 1}};
  CHECK_THROWS_AS(pack_arena(one, 48), Error);
  CHECK_THROWS_AS(pack_arena(one, 0), Error);
  const std::vector<Interval> backwards{{3, 2, 1}};
  CHECK_THROWS_AS(pack_arena(backwards, 64), Error);
  const std::vector<Interval> negative{{0, 2, -1}};
  CHECK_THROWS_AS(pack_arena(negative, 64), Error);
}

}  // namespace
}  // namespace forge::passes
