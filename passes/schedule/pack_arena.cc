// Arena packing in three stages, each of which runs only while the result is above the lower bound:
//   1. greedy placement in several orders, first-fit and best-fit;
//   2. backtracking for a packing of exactly the lower bound;
//   3. local search on the order of placement.
// Stages 2 and 3 are limited by a number of elementary placements (visits), not by time, so results are deterministic.
//
// Each buffer is a rectangle, its steps wide and its bytes high. Rectangles must not overlap, and the total height
// should be minimal:
//   offset
//     ^  +--C--+----D----+
//     |  +-----+----+----+
//     |  |    A     | B  |
//     +--+----------+----+--> step
// A packing is tight if each buffer rests on the floor or on another buffer. Every tight packing is the first-fit
// placement of some order, so it is enough to search orders (canonical solutions of MiniMalloc, ASPLOS 2023).

#include "passes/schedule/pack_arena.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "support/error.h"

namespace forge::passes {
namespace {

using Order = std::vector<std::uint32_t>;

/// Limits on elementary placements (visits) of the local search, about 0.1 s at worst, and of backtracking.
constexpr std::int64_t kSearchVisitsMax = 8'000'000;
constexpr std::int64_t kBacktrackVisitsMax = 500'000;

/// xorshift64* (Vigna 2016) with a fixed seed: the same intervals always give the same packing.
class Random {
 public:
  std::size_t below(std::size_t n) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<std::size_t>((state_ * 0x2545F4914F6CDD1DULL) >> 33) % n;
  }

 private:
  std::uint64_t state_ = 0x9E3779B97F4A7C15ULL;
};

std::int64_t aligned(std::int64_t bytes, std::int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// The intervals with their aligned sizes and conflicts: for each interval, the others that overlap it in time.
class Packer {
 public:
  Packer(std::span<const Interval> intervals, std::int64_t alignment) : intervals_(intervals) {
    sizes_.reserve(intervals.size());
    for (const Interval& interval : intervals) sizes_.push_back(aligned(interval.bytes, alignment));
    conflicts_.resize(intervals.size());
    find_conflicts();
  }

  /// Lower bound of any packing: the largest sum of sizes that are live at one step.
  [[nodiscard]] std::int64_t bound() const {
    std::vector<std::pair<std::int64_t, std::int64_t>> events;  // (time, change); frees come before takes
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      events.emplace_back(intervals_[i].first, sizes_[i]);
      events.emplace_back(static_cast<std::int64_t>(intervals_[i].last) + 1, -sizes_[i]);
    }
    std::ranges::sort(events);
    std::int64_t live = 0;
    std::int64_t most = 0;
    for (const auto& [time, change] : events) {
      live += change;
      most = std::max(most, live);
    }
    return most;
  }

  /// Places the intervals in the given order, each at the bottom of the lowest gap that holds it (first fit) or, with
  /// `tightest`, of the smallest one (best fit). Returns the size of the arena; offsets() then has the packing.
  std::int64_t place(const Order& order, bool tightest) {
    offsets_.assign(sizes_.size(), kUnplaced);
    std::int64_t height = 0;
    for (const std::uint32_t i : order) {
      taken_.clear();
      for (const std::uint32_t other : conflicts_[i])
        if (offsets_[other] != kUnplaced) taken_.emplace_back(offsets_[other], offsets_[other] + sizes_[other]);
      visits_ += static_cast<std::int64_t>(conflicts_[i].size()) + 1;
      std::ranges::sort(taken_);
      offsets_[i] = find_gap(sizes_[i], tightest);
      height = std::max(height, offsets_[i] + sizes_[i]);
    }
    return height;
  }

  /// Searches for a packing of at most `capacity` bytes with conflict-directed backtracking. Intervals are placed by
  /// start, each at the bottom or the top of a gap, the smallest gap first. If an interval fits nowhere, the search
  /// goes back to the last interval that overlaps it in time and has an untried offset. Since the layers of a
  /// transformer repeat, a conflict is usually resolved within the layer where it arises. Returns true if found;
  /// offsets() then has the packing.
  bool backtrack(std::int64_t capacity) {
    Order order(sizes_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return std::pair(intervals_[i].first, -sizes_[i]); });
    offsets_.assign(sizes_.size(), kUnplaced);
    std::vector<std::vector<std::int64_t>> choices;  // untried offsets of order[0..choices.size()), best last
    const std::int64_t visits_max = visits_ + kBacktrackVisitsMax;
    while (choices.size() < order.size()) {
      std::uint32_t item = order[choices.size()];
      choices.push_back(gap_ends(item, capacity));
      while (choices.back().empty()) {  // undo back to the last interval that conflicts with `item`
        do {
          choices.pop_back();
          if (choices.empty() || visits_ > visits_max) return false;
          offsets_[order[choices.size() - 1]] = kUnplaced;
        } while (choices.back().empty() || !in_the_way(item, order[choices.size() - 1]));
        item = order[choices.size() - 1];
      }
      offsets_[item] = choices.back().back();
      choices.back().pop_back();
    }
    return true;
  }

  [[nodiscard]] const std::vector<std::int64_t>& offsets() const { return offsets_; }
  [[nodiscard]] std::int64_t size(std::size_t i) const { return sizes_[i]; }
  [[nodiscard]] std::int64_t visits() const { return visits_; }

  /// Bytes of all intervals that overlap interval i in time, its own included: a measure of how hard it is to place.
  [[nodiscard]] std::int64_t contention(std::size_t i) const {
    std::int64_t sum = sizes_[i];
    for (const std::uint32_t other : conflicts_[i]) sum += sizes_[other];
    return sum;
  }

 private:
  static constexpr std::int64_t kUnplaced = -1;

  [[nodiscard]] bool in_the_way(std::uint32_t a, std::uint32_t b) const {
    return intervals_[a].first <= intervals_[b].last && intervals_[b].first <= intervals_[a].last;
  }

  /// Candidate offsets for interval i: the bottom and the top of each gap below `capacity` that holds it, the smallest
  /// gap last. The placed conflicting intervals are sorted by offset; `floor` is the end of those seen so far.
  std::vector<std::int64_t> gap_ends(std::uint32_t i, std::int64_t capacity) {
    taken_.clear();
    for (const std::uint32_t other : conflicts_[i])
      if (offsets_[other] != kUnplaced) taken_.emplace_back(offsets_[other], offsets_[other] + sizes_[other]);
    visits_ += static_cast<std::int64_t>(conflicts_[i].size()) + 1;
    std::ranges::sort(taken_);
    taken_.emplace_back(capacity, capacity);
    std::vector<std::pair<std::int64_t, std::int64_t>> ends;  // (-slack, offset)
    std::int64_t floor = 0;
    for (const auto& [begin, end] : taken_) {
      const std::int64_t slack = begin - floor - sizes_[i];
      if (slack >= 0) ends.emplace_back(-slack, floor);
      if (slack > 0) ends.emplace_back(-slack, floor + slack);
      floor = std::max(floor, end);
    }
    std::ranges::sort(ends, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<std::int64_t> offsets;
    for (const auto& [slack, offset] : ends) offsets.push_back(offset);
    return offsets;
  }

  /// Sweeps over the intervals by start and keeps the list of active ones. Intervals of 0 bytes have no conflicts.
  void find_conflicts() {
    Order by_start(sizes_.size());
    std::iota(by_start.begin(), by_start.end(), 0U);
    std::ranges::stable_sort(by_start, {}, [&](std::uint32_t i) { return intervals_[i].first; });
    Order active;
    for (const std::uint32_t i : by_start) {
      if (sizes_[i] == 0) continue;
      std::erase_if(active, [&](std::uint32_t a) { return intervals_[a].last < intervals_[i].first; });
      for (const std::uint32_t a : active) {
        conflicts_[a].push_back(i);
        conflicts_[i].push_back(a);
      }
      active.push_back(i);
    }
  }

  /// Offset of the first or smallest gap between taken_ (sorted) that holds `size`; above all of them if none does.
  [[nodiscard]] std::int64_t find_gap(std::int64_t size, bool tightest) const {
    std::int64_t floor = 0;
    std::int64_t best = kUnplaced;
    std::int64_t best_slack = std::numeric_limits<std::int64_t>::max();
    for (const auto& [begin, end] : taken_) {
      const std::int64_t slack = begin - floor - size;
      if (slack >= 0 && slack < best_slack) {
        best = floor;
        best_slack = slack;
        if (!tightest) return best;
      }
      floor = std::max(floor, end);
    }
    return best != kUnplaced ? best : floor;
  }

  std::span<const Interval> intervals_;
  std::vector<std::int64_t> sizes_;
  std::vector<Order> conflicts_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::pair<std::int64_t, std::int64_t>> taken_;  ///< [begin, end) of placed conflicting intervals
  std::int64_t visits_ = 0;                                   ///< work done so far, in conflicts looked at
};

/// The greedy orders, hardest buffer first by different measures: size, lifetime, size * lifetime, contention, earliest
/// start, latest end.
std::vector<Order> greedy_orders(std::span<const Interval> intervals, const Packer& packer) {
  const auto length = [&](std::size_t i) {
    return static_cast<std::int64_t>(intervals[i].last) - intervals[i].first + 1;
  };
  Order identity(intervals.size());
  std::iota(identity.begin(), identity.end(), 0U);
  std::vector<Order> orders;
  const auto by = [&](auto&& key) {
    Order order = identity;
    std::ranges::stable_sort(order, {}, key);
    orders.push_back(std::move(order));
  };
  by([&](std::uint32_t i) { return std::pair(-packer.size(i), -length(i)); });
  by([&](std::uint32_t i) { return std::pair(-length(i), -packer.size(i)); });
  by([&](std::uint32_t i) { return std::pair(-static_cast<double>(packer.size(i)) * double(length(i)), i); });
  by([&](std::uint32_t i) { return std::pair(-packer.contention(i), -packer.size(i)); });
  by([&](std::uint32_t i) { return std::pair<std::int64_t, std::int64_t>(intervals[i].first, -length(i)); });
  by([&](std::uint32_t i) { return std::pair<std::int64_t, std::int64_t>(-intervals[i].last, -length(i)); });
  return orders;
}

/// The best packing found so far, and the order that gave it.
struct Best {
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> offsets;
  Order order;
};

/// Local search. Each move takes a random buffer that reaches the top of the arena, places it earlier in the order, and
/// is kept if the arena does not grow. After kStaleMax moves without an improvement it restarts from the best order or
/// from a greedy one, in turn.
void search(Packer& packer, const std::vector<Order>& starts, std::int64_t bound, Best& best) {
  constexpr int kStaleMax = 200;
  Random random;
  const std::int64_t visits_max = packer.visits() + kSearchVisitsMax;
  std::size_t restart = 0;
  Order order = best.order;
  std::vector<std::int64_t> offsets = best.offsets;
  std::int64_t bytes = best.bytes;
  int stale = 0;
  while (best.bytes > bound && packer.visits() < visits_max) {
    if (++stale > kStaleMax) {
      order = restart % 2 == 0 ? best.order : starts[restart / 2 % starts.size()];
      ++restart;
      bytes = packer.place(order, false);
      offsets = packer.offsets();
      stale = 0;
    }
    Order top;  // positions in `order`
    for (std::size_t at = 1; at < order.size(); ++at)
      if (offsets[order[at]] + packer.size(order[at]) == bytes) top.push_back(static_cast<std::uint32_t>(at));
    if (top.empty()) top.push_back(static_cast<std::uint32_t>(1 + random.below(order.size() - 1)));
    const std::size_t from = top[random.below(top.size())];
    const std::size_t to = random.below(from);
    Order next = order;
    const auto begin = next.begin();
    std::rotate(begin + std::ptrdiff_t(to), begin + std::ptrdiff_t(from), begin + std::ptrdiff_t(from) + 1);
    const std::int64_t next_bytes = packer.place(next, false);
    if (next_bytes > bytes) continue;
    if (next_bytes < bytes) stale = 0;
    order = std::move(next);
    offsets = packer.offsets();
    bytes = next_bytes;
    if (bytes < best.bytes) best = {bytes, offsets, order};
  }
}

}  // namespace

Packing pack_arena(std::span<const Interval> intervals, std::int64_t alignment) {
  invariant(alignment > 0 && std::has_single_bit(static_cast<std::uint64_t>(alignment)), "PA-001",
            "arena alignment is a power of two");
  for (const Interval& interval : intervals)
    invariant(interval.first <= interval.last && interval.bytes >= 0, "PA-002",
              "an interval ends before it begins or has a negative size");
  Packer packer(intervals, alignment);
  Packing packing;
  packing.bound_bytes = packer.bound();
  if (intervals.empty()) return packing;

  const std::vector<Order> orders = greedy_orders(intervals, packer);
  Best best;
  for (const Order& order : orders) {
    for (const bool tightest : {false, true}) {
      const std::int64_t bytes = packer.place(order, tightest);
      if (bytes < best.bytes) best = {bytes, packer.offsets(), order};
      if (best.bytes == packing.bound_bytes) break;
    }
    if (best.bytes == packing.bound_bytes) break;
  }
  if (best.bytes > packing.bound_bytes && packer.backtrack(packing.bound_bytes))
    best = {packing.bound_bytes, packer.offsets(), {}};
  if (best.bytes > packing.bound_bytes && intervals.size() > 1) search(packer, orders, packing.bound_bytes, best);
  packing.offsets = std::move(best.offsets);
  packing.bytes = best.bytes;
  return packing;
}

}  // namespace forge::passes
