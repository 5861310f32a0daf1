#pragma once
// The pairs of a word that may be joined, in the order in which they are: by rank, then from left to right.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace forge::text {

struct Pair {
  std::uint64_t order = 0;  ///< rank << 32 | the left symbol
  std::int32_t right = 0;
  std::uint32_t bytes = 0;  ///< of both; tells a pair that is out of date
};

/// A binary heap: best for words of usual lengths.
class PairHeap {
 public:
  void clear() { pairs_.clear(); }
  void push(const Pair& pair) {
    pairs_.push_back(pair);
    std::ranges::push_heap(pairs_, after);
  }
  /// The first of all pairs; nullopt when none is left.
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

/// A list a rank, and a heap of the ranks that have pairs. Pairs of one rank mostly come from left to right and need no
/// sorting; those that do not wait in a heap of the rank's own. A long word is so gone through from left to right once
/// a rank: a megabyte of one letter costs ten times what a tenth of it does, where one heap's cost was fifteen times.
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
      list.late.push(pair);
    if (list.waiting) return;
    list.waiting = true;
    ranks_.push_back(static_cast<std::uint32_t>(&list - lists_.data()));
    std::ranges::push_heap(ranks_, {}, [&](std::uint32_t i) { return ~lists_[i].rank; });
  }
  std::optional<Pair> pop() {
    while (!ranks_.empty()) {
      List& list = lists_[ranks_.front()];
      const Pair* late = list.late.first();
      if (!list.sorted.empty() && (late == nullptr || list.sorted.front().order <= late->order)) {
        const Pair first = list.sorted.front();
        list.sorted.pop_front();
        return first;
      }
      if (late != nullptr) return list.late.pop();
      list.waiting = false;
      std::ranges::pop_heap(ranks_, {}, [&](std::uint32_t i) { return ~lists_[i].rank; });
      ranks_.pop_back();
    }
    return std::nullopt;
  }

 private:
  static constexpr std::uint32_t kFree = UINT32_MAX;
  struct List {
    std::uint32_t rank = 0;
    bool waiting = false;     // its rank is in ranks_
    std::deque<Pair> sorted;  // gives memory back as it is gone through
    PairHeap late;
  };

  /// Where the rank's list is, or the free slot for it.
  std::uint32_t& slot_of(std::uint32_t rank) {
    const std::uint64_t mask = slots_.size() - 1;
    for (std::uint64_t at = rank * 0x9E3779B97F4A7C15U >> 20;; ++at)
      if (auto& slot = slots_[at & mask]; slot == kFree || lists_[slot].rank == rank) return slot;
  }
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
