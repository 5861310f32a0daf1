#pragma once
// List of idle KV blocks (unreferenced but still in the prefix cache) in the order in which they became idle. Eviction
// takes the oldest, i.e. the least recently used. Source: LRU, Belady, IBM Systems Journal 5(2), 1966.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace forge::runtime {

/// A doubly linked list whose links are in one array indexed by block number, so that removal is O(1) and nothing is
/// allocated after construction. Not thread-safe.
class KvIdleList {
 public:
  static constexpr std::int32_t kNone = -1;

  explicit KvIdleList(std::size_t blocks) : links_(blocks) {}

  [[nodiscard]] bool holds(std::int32_t block) const { return link(block).listed; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Returns the least recently used block, or kNone when the list is empty.
  [[nodiscard]] std::int32_t oldest() const { return oldest_; }

  /// Appends as the newest.
  /// Precondition: !holds(block).
  void push(std::int32_t block) noexcept {
    link(block) = {.older = newest_, .newer = kNone, .listed = true};
    (newest_ == kNone ? oldest_ : link(newest_).newer) = block;
    newest_ = block;
    ++size_;
  }
  /// Unlinks from anywhere in the list.
  /// Precondition: holds(block).
  void remove(std::int32_t block) noexcept {
    auto& l = link(block);
    (l.older == kNone ? oldest_ : link(l.older).newer) = l.newer;
    (l.newer == kNone ? newest_ : link(l.newer).older) = l.older;
    l.listed = false;
    --size_;
  }

  /// True if walking from the oldest to the newest block meets exactly size() blocks, all marked as listed.
  [[nodiscard]] bool is_sound() const {
    std::size_t met = 0;
    for (std::int32_t block = oldest_; block != kNone; block = link(block).newer, ++met)
      if (!holds(block) || met == size_) return false;
    return met == size_;
  }

 private:
  struct Link {
    std::int32_t older = kNone, newer = kNone;
    bool listed = false;
  };
  [[nodiscard]] const Link& link(std::int32_t block) const { return links_[static_cast<std::size_t>(block)]; }
  Link& link(std::int32_t block) { return links_[static_cast<std::size_t>(block)]; }

  std::vector<Link> links_;  ///< [blocks]
  std::int32_t oldest_ = kNone, newest_ = kNone;
  std::size_t size_ = 0;
};

}  // namespace forge::runtime
