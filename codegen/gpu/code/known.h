#pragma once
// Values of which only a part is known: what a kernel's registers hold while its code is walked (walk.h) without the
// data in memory. Nothing here guesses: what is said to be known would be so on the device.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace forge::codegen {

/// 64 bits, of which those in `known` are known; the others are 0 in `value`.
struct Known {
  std::uint64_t value = 0, known = 0;

  static constexpr Known of(std::uint64_t value) { return {value, ~std::uint64_t{0}}; }
  /// True if the lowest `bits` bits are all known.
  [[nodiscard]] constexpr bool has(int bits) const { return (known & low_mask(bits)) == low_mask(bits); }
  /// The lowest `bits` bits; the others are known zeros.
  [[nodiscard]] constexpr Known low(int bits) const { return {value & low_mask(bits), known | ~low_mask(bits)}; }
  static constexpr std::uint64_t low_mask(int bits) {
    return bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  }
  /// Lanes (bits) that are certainly on, and lanes that may be.
  [[nodiscard]] constexpr std::uint64_t on() const { return value & known; }
  [[nodiscard]] constexpr std::uint64_t maybe() const { return value | ~known; }
  bool operator==(const Known&) const = default;
};

constexpr Known operator~(Known a) {
  return {~a.value & a.known, a.known};
}
/// A zero of one side makes a zero, whatever the other side is.
constexpr Known operator&(Known a, Known b) {
  const auto zeros = (a.known & ~a.value) | (b.known & ~b.value);
  return {a.value & b.value, (a.known & b.known) | zeros};
}
constexpr Known operator|(Known a, Known b) {
  return ~(~a & ~b);
}
constexpr Known operator^(Known a, Known b) {
  const auto known = a.known & b.known;
  return {(a.value ^ b.value) & known, known};
}

/// A condition: true, false or unknown.
enum class Maybe : std::uint8_t { kNo, kYes, kUnknown };
constexpr Maybe maybe(bool value) {
  return value ? Maybe::kYes : Maybe::kNo;
}
/// Is some bit of the lowest `bits` set?
constexpr Maybe any(Known a, int bits) {
  a = a.low(bits);
  if (a.on() != 0) return Maybe::kYes;
  return a.maybe() == 0 ? Maybe::kNo : Maybe::kUnknown;
}

inline constexpr int kLanesMax = 64;

/// A vector register: a word a lane; lane i's is known if bit i of `known` is set.
struct Lanes {
  std::array<std::uint32_t, kLanesMax> value{};
  std::uint64_t known = 0;

  static Lanes all(std::uint32_t value) {
    Lanes out;
    out.value.fill(value);
    out.known = ~std::uint64_t{0};
    return out;
  }
  [[nodiscard]] bool knows(int lane) const { return (known >> lane & 1) != 0; }
  void set(int lane, std::uint32_t word) {
    value[static_cast<std::size_t>(lane)] = word;
    known |= std::uint64_t{1} << lane;
  }
};

}  // namespace forge::codegen
