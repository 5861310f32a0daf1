#pragma once
// SentencePiece's compiled normalisation rules (tokenizer.ggml.precompiled_charsmap), used by Unigram. A rule replaces
// a key by its value wherever the text begins with the key; the longest key wins.
//
// The format, little-endian:
//    u32 size of the trie in bytes | trie: u32 units | values: strings, each ended by a NUL
// The trie is a double array (Aoe 1989, in the layout of darts-clone). A unit is either
//    a value: bit 31 set, bits 0-30 the offset of the string among the values
//    a node:  bits 0-7 the byte that leads to it, bit 8 set if a key ends here,
//             bits 10-30 the offset, to be shifted left by 8 if bit 9 is set
// The child of node n for byte b is unit n ^ offset(n) ^ b, if that unit's label is b; the value of n is unit n ^
// offset(n).

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "loader/gguf/gguf.h"

namespace forge::text {

/// The rules of one file; empty if the file has none. Immutable, so threads may share it.
class Charsmap {
 public:
  Charsmap() = default;
  /// Refers to the bytes of `gguf`, which must outlive this. Everything is bounds-checked here, so find() need not.
  /// Errors: kTokenizer for a map that is cut short or points outside itself.
  explicit Charsmap(const loader::Gguf& gguf);

  [[nodiscard]] bool empty() const { return unit_count_ == 0; }
  /// The rule that applies at the start of a text.
  struct Match {
    std::size_t bytes = 0;   ///< length of the key; 0 if no rule applies
    std::string_view value;  ///< what replaces it
  };
  /// The rule with the longest key that `text` begins with.
  [[nodiscard]] Match find(std::string_view text) const;
  /// True if no key that begins with the ASCII character `c` ends there or goes on with another ASCII character. Such a
  /// character needs no look-up unless a non-ASCII character follows it, so plain English text is normalised without
  /// the trie.
  [[nodiscard]] bool keeps_ascii(char c) const { return keeps_ascii_.at(static_cast<std::uint8_t>(c)); }

 private:
  static constexpr std::array<bool, 256> ascii_alone() {
    std::array<bool, 256> all{};
    for (std::size_t c = 0; c < 128; ++c) all.at(c) = true;
    return all;
  }
  /// Unit `i` of the trie. The bytes of a GGUF array may be unaligned, hence the copy.
  [[nodiscard]] std::uint32_t unit(std::uint32_t i) const;
  /// The value at this offset, without its NUL.
  [[nodiscard]] std::string_view value(std::uint32_t offset) const;

  std::span<const std::byte> units_;
  std::uint32_t unit_count_ = 0;
  std::string_view values_;
  std::array<bool, 256> keeps_ascii_ = ascii_alone();  // false from 128 on
};

}  // namespace forge::text
