#pragma once
// Static memory planning as a pure function on intervals: no graph, no target.

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
  std::vector<std::int64_t> offsets;  ///< one an interval, multiples of `alignment`
  std::int64_t bytes = 0;             ///< of the whole block
  std::int64_t bound_bytes = 0;       ///< largest sum of (aligned) bytes live at one step: no packing can be smaller
};

/// Intervals that overlap in time never overlap in space. Deterministic. Tries several greedy orders and, while the
/// result is above the bound, a bounded search (MiniMalloc, ASPLOS 2023, is the idea's source).
Packing pack_arena(std::span<const Interval> intervals, std::int64_t alignment);

}  // namespace forge::passes
