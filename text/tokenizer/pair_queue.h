#pragma once
// The queue of pairs that may be merged, ordered by rank and then from left to right. Two implementations with the same
// interface: PairHeap for usual words, PairLists for long ones.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace forge::text {

/// Two adjacent symbols. `order` is the sort key: rank in the upper half, position of the left symbol in the lower.
struct Pair {
  std::uint64_t order = 0;  ///< rank << 32 | left symbol
  std::int32_t right = 0;
  std::uint32_t bytes = 0;  ///< of both symbols when the pair was pushed; tells a stale pair
};

/// A binary heap: best for words of usual length.
class PairHeap {
 public:
  void clear() { pairs_.clear(); }
  void push(const Pair& pair) {
    pairs_.push_back(pair);
    std::ranges::push_heap(pairs_, after);
  }
  /// Removes and returns the first pair; nullopt if none is left.
  std::optional<Pair> pop() {
    if (pairs_.empty()) return std::nullopt;
    const Pair first = pairs_.front();
    std::ranges::pop_heap(pairs_, after);
    pairs_.pop_back();
    return first;
  }
  [[nodiscard]] const Pair* first() const { return pairs_.empty() ? nullptr : &pairs_.front(); }

 private:
  static bool after(const Pair& a, const Pair& b) { return a.order > b.order; }
  std::vector<Pair> pairs_;
};

/// One list for each rank, and a heap of the ranks whose list is not empty. Pairs of one rank are mostly pushed from
/// left to right, so they need no sorting; the exceptions go to a small heap of the same rank. A long word is thus read
/// from left to right once for each rank. Measured: for a megabyte of one letter against a tenth of it the time grows
/// tenfold, with one heap it grew fifteenfold.
///
///    ranks_ (heap)     lists_
///      3  ---------->  rank 3:  sorted: (0,1) (4,5) (8,9)   unsorted: (2,3)
///      7  ---------->  rank 7:  sorted: (1,2)               unsorted:
class PairLists {
 public:
  void clear() {
    lists_.clear();
    ranks_.clear();
    slots_.assign(64, kFree);
  }
  void push(const Pair& pair) {
    List& list = list_of(static_cast<std::uint32_t>(pair.order >> 32));
    if (list.sorted.empty() || list.sorted.back().order <= pair.order)
      list.sorted.push_back(pair);
    else
      list.unsorted.push(pair);
    if (list.queued) return;
    list.queued = true;
    // std::push_heap builds a max-heap; ~rank makes the lowest rank the top.
    ranks_.push_back(static_cast<std::uint32_t>(&list - lists_.data()));
    std::ranges::push_heap(ranks_, {}, [&](std::uint32_t i) { return ~lists_[i].rank; });
  }
  std::optional<Pair> pop() {
    while (!ranks_.empty()) {
      List& list = lists_[ranks_.front()];
      const Pair* unsorted = list.unsorted.first();
      if (!list.sorted.empty() && (unsorted == nullptr || list.sorted.front().order <= unsorted->order)) {
        const Pair first = list.sorted.front();
        list.sorted.pop_front();
        return first;
      }
      if (unsorted != nullptr) return list.unsorted.pop();
      list.queued = false;
      std::ranges::pop_heap(ranks_, {}, [&](std::uint32_t i) { return ~lists_[i].rank; });
      ranks_.pop_back();
    }
    return std::nullopt;
  }

 private:
  static constexpr std::uint32_t kFree = UINT32_MAX;
  struct List {
    std::uint32_t rank = 0;
    bool queued = false;      // its position is in ranks_
    std::deque<Pair> sorted;  // a deque frees memory while it is popped
    PairHeap unsorted;
  };

  /// The slot that holds the rank's position in lists_, or the free slot where it belongs (linear probing, Fibonacci
  /// hashing).
  std::uint32_t& slot_of(std::uint32_t rank) {
    const std::uint64_t mask = slots_.size() - 1;
    for (std::uint64_t at = rank * 0x9E3779B97F4A7C15U >> 20;; ++at)
      if (auto& slot = slots_[at & mask]; slot == kFree || lists_[slot].rank == rank) return slot;
  }
  // The rank's list, made on first use. The table grows fourfold when it is half full.
  List& list_of(std::uint32_t rank) {
    if (const std::uint32_t at = slot_of(rank); at != kFree) return lists_[at];
    lists_.emplace_back().rank = rank;
    if (lists_.size() * 2 > slots_.size()) {
      slots_.assign(slots_.size() * 4, kFree);
      for (std::uint32_t i = 0; i < lists_.size(); ++i) slot_of(lists_[i].rank) = i;
    } else {
      slot_of(rank) = static_cast<std::uint32_t>(lists_.size() - 1);
    }
    return lists_.back();
  }

  std::vector<List> lists_;
  std::vector<std::uint32_t> ranks_;  // heap of positions in lists_, the lowest rank first
  std::vector<std::uint32_t> slots_;  // open addressing: rank -> position in lists_
};

}  // namespace forge::text
