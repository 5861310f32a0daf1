#pragma once
// How a block type is packed for kernels (layout x16): what x16_codes.h makes its bytes from. A packed block holds, in
// units of 32 columns, codes of `low` + `high` bits; and behind all of them the block's f16 numbers and the small whole
// numbers that its scales and minima are made of.

#include "kernels/quant/f16.h"

namespace forge::quant {

/// A scale is d * of(number) * unit, of being the number itself, the number as int8, less 32, or 2 n + 1; d where there
/// are no numbers. kExponent: 2^(number-128), no d.
enum class ScaleKind : u8 { kPlain, kSigned, kLess32, kOdd, kExponent };

struct Packing {
  u32 low;          ///< bits of a code in the plane of nibbles (4) or of pairs of bits (2)
  u32 high;         ///< its further bits, in a plane of their own: 0, 1 or 2
  u32 halves;       ///< f16 a block: d; or d, dmin (m)
  u32 numbers;      ///< whole numbers to 32 columns: a scale, a minimum (if there are any) for each kSub columns
  u32 number_bits;  ///< 4, 6 or 8
  ScaleKind scale = ScaleKind::kPlain;
  float unit = 1;

  /// Numbers to a part of `sub` columns: its scale, and its minimum if there are two.
  [[nodiscard]] constexpr u32 numbers_a_part(u32 sub) const { return numbers * sub / 32; }
};

/// 8 bits as 8 bytes of 0 or 1; the lowest first.
FORGE_QUANT_FN u64 bytes_of_bits(u64 bits) {
  const u64 each = (bits & 255u) * 0x0101010101010101u & 0x8040201008040201u;
  return (each + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}
// Bytes go by words, lowest first: of loops over 8 or 16 of them g++ 12 makes single bytes where registers are wider.
FORGE_QUANT_FN u64 load_bytes(const u8* in) {
  u64 word;
  copy_bytes<8>(&word, in);
  return word;
}
FORGE_QUANT_FN void store_bytes(u64 word, u8* out) {
  copy_bytes<8>(out, &word);
}
/// 32 nibbles in Q4_0's order.
FORGE_QUANT_FN void nibble_codes(const u8* qs, u8* codes) {
  for (int half = 0; half < 16; half += 8) {
    const u64 word = load_bytes(qs + half);
    store_bytes(word & 0x0f0f0f0f0f0f0f0fu, codes + half);
    store_bytes(word >> 4 & 0x0f0f0f0f0f0f0f0fu, codes + 16 + half);
  }
}

/// of(number) for all kinds but kExponent.
FORGE_QUANT_FN int scale_factor(ScaleKind kind, u32 number) {
  switch (kind) {
    case ScaleKind::kSigned:
      return static_cast<i8>(number);
    case ScaleKind::kLess32:
      return static_cast<int>(number) - 32;
    case ScaleKind::kOdd:
      return static_cast<int>(2 * number + 1);
    default:
      return static_cast<int>(number);
  }
}
/// 2^(number-128), exact: subnormal for 0 and 1.
FORGE_QUANT_FN float half_of_e8m0(u32 number) {
  return f32_of_bits(number < 2 ? 0x00200000u << number : (number - 1) << 23);
}

}  // namespace forge::quant
