#pragma once
// Pair merging, the common part of byte-level BPE (arXiv 1508.07909) and SentencePiece BPE (arXiv 1808.06226): start
// from characters, join the best adjacent pair until none can be joined. O(n log n) in the word's length at most, and
// linear where few ranks take part.

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

/// A stretch of the word; `bytes` 0 when it was joined to the one before it.
struct Symbol {
  std::uint32_t begin = 0;
  std::uint32_t bytes = 0;
  std::int32_t prev = -1;
  std::int32_t next = -1;
  std::uint64_t hash = 0;
};

/// Scratch that words of one call share, so that short words allocate nothing.
class Merger {
 public:
  static constexpr std::size_t kWordBytesMax = std::size_t{1} << 30;

  /// Calls emit(text, hash) for each stretch that is left. `text`: at most kWordBytesMax bytes.
  /// `priority(text of the pair, left, right)`: a uint32 rank, lower joined first, nullopt when the pair does not join;
  /// equal ranks go from left to right.
  template <class Priority, class Emit>
  void run(std::string_view text, Priority priority, Emit emit) {
    cut(text);
    if (symbols_.size() < kLongWord)
      join(text, heap_, priority);
    else
      join(text, lists_, priority);
    for (std::int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
      const Symbol& symbol = symbols_[static_cast<std::size_t>(i)];
      emit(text.substr(symbol.begin, symbol.bytes), symbol.hash);
    }
  }

 private:
  static constexpr std::size_t kLongWord = 256;  // characters

  template <class Queue, class Priority>
  void join(std::string_view text, Queue& queue, Priority& priority) {
    queue.clear();
    const auto consider = [&](std::int32_t left, std::int32_t right) {
      const Symbol &a = symbols_[static_cast<std::size_t>(left)], &b = symbols_[static_cast<std::size_t>(right)];
      const std::uint32_t bytes = a.bytes + b.bytes;
      if (const std::optional<std::uint32_t> rank = priority(text.substr(a.begin, bytes), a, b))
        queue.push({std::uint64_t{*rank} << 32 | static_cast<std::uint32_t>(left), right, bytes});
    };
    for (std::int32_t i = 1; i < static_cast<std::int32_t>(symbols_.size()); ++i) consider(i - 1, i);
    while (const std::optional<Pair> best = queue.pop()) {
      const auto left = static_cast<std::int32_t>(best->order & 0xFFFFFFFF);
      Symbol& a = symbols_[static_cast<std::size_t>(left)];
      Symbol& b = symbols_[static_cast<std::size_t>(best->right)];
      // Out of date when either side has been joined to something since.
      if (a.bytes == 0 || b.bytes == 0 || a.bytes + b.bytes != best->bytes) continue;
      a.bytes += b.bytes;
      b.bytes = 0;
      a.next = b.next;
      if (a.next >= 0) symbols_[static_cast<std::size_t>(a.next)].prev = left;
      a.hash = hash_of(text.substr(a.begin, a.bytes));
      if (a.prev >= 0) consider(a.prev, left);
      if (a.next >= 0) consider(left, a.next);
    }
  }

  /// One symbol a character; a character that is cut short by the end takes what is there.
  void cut(std::string_view text) {
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
