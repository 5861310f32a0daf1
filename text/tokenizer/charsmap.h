#pragma once
// SentencePiece's compiled normalisation rules (tokenizer.ggml.precompiled_charsmap): text that begins with a key of
// the map is replaced by its value, the longest key first. The keys are a double-array trie of 32-bit units (Aoe 1989,
// in the form of darts-clone), behind it lie the values, each ended by a NUL.
//
// A unit is a value (bit 31 set, the rest its offset) or a node: bits 0-7 the byte that led to it, bit 8 whether a
// value hangs on it, bits 10-30 an offset, shifted left by 8 where bit 9 is set. The unit after node n for byte b is
// n ^ offset(n) ^ b; a node's value is the unit n ^ offset(n).

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "loader/gguf/gguf.h"

namespace forge::text {

class Charsmap {
 public:
  Charsmap() = default;
  /// Views into `gguf`, which outlives this. Without the key nothing is replaced. Errors: kTokenizer for a map that is
  /// cut short or points outside itself.
  explicit Charsmap(const loader::Gguf& gguf);

  [[nodiscard]] bool empty() const { return unit_count_ == 0; }
  struct Match {
    std::size_t bytes = 0;  ///< of the text; 0 when no key fits
    std::string_view value;
  };
  [[nodiscard]] Match find(std::string_view text) const;
  /// Whether no key begins with this ASCII character and then ends or goes on with another one: in plain English text
  /// there is nothing to look up.
  [[nodiscard]] bool leaves_ascii(char c) const { return leaves_ascii_.at(static_cast<std::uint8_t>(c)); }

 private:
  static constexpr std::array<bool, 256> ascii_alone() {
    std::array<bool, 256> all{};
    for (std::size_t c = 0; c < 128; ++c) all.at(c) = true;
    return all;
  }
  [[nodiscard]] std::uint32_t unit(std::uint32_t i) const;
  /// The value at this offset, up to its NUL.
  [[nodiscard]] std::string_view value(std::uint32_t offset) const;

  std::span<const std::byte> units_;
  std::uint32_t unit_count_ = 0;
  std::string_view values_;
  std::array<bool, 256> leaves_ascii_ = ascii_alone();  // false from 128 on
};

}  // namespace forge::text
