#pragma once
// A set of bytes as 256 bits.

#include <array>
#include <cstdint>

namespace forge::text::constraint {

struct ByteSet {
  std::array<std::uint64_t, 4> words{};

  friend bool operator==(const ByteSet&, const ByteSet&) = default;
  [[nodiscard]] bool has(std::uint8_t byte) const { return (words[byte >> 6] >> (byte & 63) & 1) != 0; }
  void add(std::uint8_t byte) { words[byte >> 6] |= std::uint64_t{1} << (byte & 63); }
  /// Adds the bytes `first` to `last`, both included.
  void add(std::uint8_t first, std::uint8_t last) {
    for (unsigned byte = first; byte <= last; ++byte) add(static_cast<std::uint8_t>(byte));
  }
  [[nodiscard]] bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  [[nodiscard]] static ByteSet all() { return {{~0ULL, ~0ULL, ~0ULL, ~0ULL}}; }

  ByteSet& operator|=(const ByteSet& other) {
    for (unsigned i = 0; i < 4; ++i) words[i] |= other.words[i];
    return *this;
  }
  ByteSet& operator&=(const ByteSet& other) {
    for (unsigned i = 0; i < 4; ++i) words[i] &= other.words[i];
    return *this;
  }
};

}  // namespace forge::text::constraint
