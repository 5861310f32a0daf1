#pragma once
// A cache of the words of one text. Most words of a long text are repeats, and copying their ids costs about a
// twentieth of merging them again. It lives for one encode() call and points into that call's text and output.
//
//    slots_:  hash, word -> out_[first, first + count)     (a repeat copies that range to the end of out_)

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer/string_table.h"

namespace forge::text {

class WordCache {
 public:
  explicit WordCache(std::vector<std::int32_t>& out) : out_(out) {}

  /// Appends the ids of `word` to the output: a copy if the word was seen before, otherwise make() is called and must
  /// append them. The bytes of `word` must stay where they are as long as the cache lives.
  template <class Make>
  void append(std::string_view word, Make make) {
    if (word.size() > kWordBytesMax) return make();
    if (count_ * 2 >= slots_.size()) grow();
    const std::uint64_t hash = hash_of(word);
    std::uint64_t at = hash & (slots_.size() - 1);
    for (; slots_[at].word != nullptr; at = (at + 1) & (slots_.size() - 1)) {
      const Slot slot = slots_[at];
      if (slot.hash != hash || std::string_view(slot.word, slot.bytes) != word) continue;
      const std::size_t size = out_.size();
      out_.resize(size + slot.count);
      for (std::size_t i = 0; i < slot.count; ++i) out_[size + i] = out_[slot.first + i];
      return;
    }
    const std::size_t first = out_.size();
    make();
    slots_[at] = {hash, word.data(), first, static_cast<std::uint16_t>(word.size()),
                  static_cast<std::uint16_t>(out_.size() - first)};
    ++count_;
  }

 private:
  static constexpr std::size_t kWordBytesMax = 255;  // longer words hardly ever repeat
  struct Slot {
    std::uint64_t hash = 0;
    const char* word = nullptr;
    std::size_t first = 0;  // in the output
    std::uint16_t bytes = 0;
    std::uint16_t count = 0;
  };

  // Open addressing with linear probing; the table grows fourfold when it is half full. Nothing is ever removed.
  void grow() {
    std::vector<Slot> old(std::max<std::size_t>(64, slots_.size() * 4));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.word == nullptr) continue;
      std::uint64_t at = slot.hash & (slots_.size() - 1);
      while (slots_[at].word != nullptr) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  std::vector<std::int32_t>& out_;
  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace forge::text
