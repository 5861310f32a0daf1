#pragma once
// Pair merging, shared by byte-level BPE (arXiv 1508.07909) and SentencePiece BPE (arXiv 1808.06226). The word starts
// as single characters; the adjacent pair of the best rank is merged until no pair has a rank. At most O(n log n) for a
// word of n characters, and linear if only a few ranks occur.
//
// The symbols form a doubly linked list inside an array, so a merge is O(1). A merged symbol stays at the place of its
// left part; the right part becomes empty (bytes == 0), shown as a dot:
//
//    l  o  w  e  r    -- merge l o -->    lo .  w  e  r    -- merge e r -->    lo .  w  er .

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/pair_queue.h"
#include "text/tokenizer/string_table.h"
#include "text/tokenizer/unicode.h"

namespace forge::text {

/// A part of the word: text[begin, begin + bytes). bytes == 0: it was merged into the symbol before it. `prev` and
/// `next` are positions of the neighbours, -1 at the ends; `hash` is hash_of() its text.
struct Symbol {
  std::uint32_t begin = 0;
  std::uint32_t bytes = 0;
  std::int32_t prev = -1;
  std::int32_t next = -1;
  std::uint64_t hash = 0;
};

/// The algorithm with its scratch memory. One object serves all words of a call, so short words allocate nothing.
class Merger {
 public:
  static constexpr std::size_t kWordBytesMax = std::size_t{1} << 30;

  /// Merges `text`, at most kWordBytesMax bytes, and calls emit(text, hash) for each symbol that is left, from left to
  /// right. priority(text of both, left, right) returns the rank of merging two adjacent symbols (lower is merged
  /// first), or nullopt if they do not merge. Equal ranks are merged from left to right.
  template <class Priority, class Emit>
  void run(std::string_view text, Priority priority, Emit emit) {
    split_into_chars(text);
    // A binary heap is best for usual words; the lists pay for long ones (pair_queue.h).
    if (symbols_.size() < kLongWord)
      merge(text, heap_, priority);
    else
      merge(text, lists_, priority);
    for (std::int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
      const Symbol& symbol = symbols_[static_cast<std::size_t>(i)];
      emit(text.substr(symbol.begin, symbol.bytes), symbol.hash);
    }
  }

 private:
  static constexpr std::size_t kLongWord = 256;  // characters; PairLists from here on

  // The main loop. The queue may hold pairs that no longer exist, because removing them at each merge would need a
  // search. A pair is recognised as stale when it is popped: one side is gone, or the two have grown.
  template <class Queue, class Priority>
  void merge(std::string_view text, Queue& queue, Priority& priority) {
    queue.clear();
    const auto push_pair = [&](std::int32_t left, std::int32_t right) {
      const Symbol &a = symbols_[static_cast<std::size_t>(left)], &b = symbols_[static_cast<std::size_t>(right)];
      const std::uint32_t bytes = a.bytes + b.bytes;
      if (const std::optional<std::uint32_t> rank = priority(text.substr(a.begin, bytes), a, b))
        queue.push({std::uint64_t{*rank} << 32 | static_cast<std::uint32_t>(left), right, bytes});
    };
    for (std::int32_t i = 1; i < static_cast<std::int32_t>(symbols_.size()); ++i) push_pair(i - 1, i);
    while (const std::optional<Pair> best = queue.pop()) {
      const auto left = static_cast<std::int32_t>(best->order & 0xFFFFFFFF);
      Symbol& a = symbols_[static_cast<std::size_t>(left)];
      Symbol& b = symbols_[static_cast<std::size_t>(best->right)];
      if (a.bytes == 0 || b.bytes == 0 || a.bytes + b.bytes != best->bytes) continue;
      a.bytes += b.bytes;
      b.bytes = 0;
      a.next = b.next;
      if (a.next >= 0) symbols_[static_cast<std::size_t>(a.next)].prev = left;
      a.hash = hash_of(text.substr(a.begin, a.bytes));
      if (a.prev >= 0) push_pair(a.prev, left);
      if (a.next >= 0) push_pair(left, a.next);
    }
  }

  // One symbol for each character. A character that the end of the text cuts short becomes a shorter symbol.
  void split_into_chars(std::string_view text) {
    symbols_.clear();
    symbols_.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t bytes = std::min(sequence_bytes(text[at]), text.size() - at);
      const auto i = static_cast<std::int32_t>(symbols_.size());
      symbols_.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(bytes), i - 1, i + 1,
                          hash_of(text.substr(at, bytes))});
      at += bytes;
    }
    if (!symbols_.empty()) symbols_.back().next = -1;
  }

  std::vector<Symbol> symbols_;
  PairHeap heap_;
  PairLists lists_;
};

}  // namespace forge::text
