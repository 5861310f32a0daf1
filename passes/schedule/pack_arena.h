#pragma once
// Static memory planning: assigns offsets in one arena to buffers with known lifetimes. A pure function on intervals,
// independent of graph and target. bind_variants uses it.
//
//   intervals {first, last, bytes}: A {0, 1, 64}, B {1, 2, 64}, C {2, 3, 64}
//   packing: A 0, B 64, C 0         C reuses A's bytes, because A is dead in step 2; 128 bytes in all

#include <cstdint>
#include <span>
#include <vector>

namespace forge::passes {

/// A buffer of `bytes` that is live in the steps [first, last], both ends included.
struct Interval {
  std::int32_t first = 0, last = 0;
  std::int64_t bytes = 0;
};

struct Packing {
  std::vector<std::int64_t> offsets;  ///< bytes, one for each interval; multiples of `alignment`
  std::int64_t bytes = 0;             ///< size of the arena
  std::int64_t bound_bytes = 0;       ///< most (aligned) bytes live at one step: no packing can be smaller
};

/// Packs the intervals: those that overlap in time do not overlap in space. Deterministic. Tries several greedy orders
/// and, if the result is above the bound, a search of limited work (after MiniMalloc, ASPLOS 2023). `alignment` is a
/// power of two (PA-001); intervals are valid (PA-002).
Packing pack_arena(std::span<const Interval> intervals, std::int64_t alignment);

}  // namespace forge::passes
