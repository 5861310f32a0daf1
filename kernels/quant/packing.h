#pragma once
// Describes how a block type is packed for CPU kernels (layout x16, x16_codes.h) and GPU kernels (layout planes,
// planes_codes.h). A packed block holds the elements' codes in units of 32 columns, `low` + `high` bits each, and after
// them the block's f16 numbers and the small integers that scales and minima are made of.

#include "kernels/quant/f16.h"

namespace forge::quant {

/// How the scale of a sub-block follows from d (f16) and its small integer n: scale = d * f(n) * unit. Types without
/// integers have scale = d.
///   kPlain     f(n) = n
///   kSigned    f(n) = n read as int8
///   kMinus32    f(n) = n - 32
///   kOdd       f(n) = 2 n + 1
///   kExponent  scale = 2^(n - 128), without d (MXFP4)
///   kE5M3      scale = half the value of n as a float of 5 exponent bits and 3 mantissa bits, without d (NVFP4)
enum class ScaleKind : u8 { kPlain, kSigned, kMinus32, kOdd, kExponent, kE5M3 };

/// Example Q4_K: low 4, high 0, halves 2 (d, dmin), numbers 2 (a scale and a minimum per 32 columns), number_bits 6.
struct Packing {
  u32 low;          ///< low bits of a code, stored as nibbles (4) or as bit pairs (2)
  u32 high;         ///< remaining bits of a code, stored apart from the low ones: 0, 1 or 2
  u32 halves;       ///< f16 numbers per block: d, or d and dmin (m)
  u32 numbers;      ///< small integers per 32 columns: a scale and, if stored, a minimum per kSub columns
  u32 number_bits;  ///< bits of a small integer: 4, 6 or 8
  ScaleKind scale = ScaleKind::kPlain;
  float unit = 1;

  /// Small integers of `sub` columns: 1 (scale) or 2 (scale, minimum).
  [[nodiscard]] constexpr u32 numbers_per_sub(u32 sub) const { return numbers * sub / 32; }
};

/// Expands 8 bits to 8 bytes of 0 or 1, lowest bit first. The product copies the byte to all 8 bytes and the mask keeps
/// bit i of byte i; adding 0x7f then sets a byte's top bit exactly if it is not zero, without a carry into the next
/// byte.
FORGE_QUANT_FN u64 bytes_of_bits(u64 bits) {
  const u64 each = (bits & 255u) * 0x0101010101010101u & 0x8040201008040201u;
  return (each + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}
// Little-endian words of 8 bytes. Loops over 8 or 16 bytes are written with these words, because g++ 12 compiles such
// loops to single-byte operations where vector registers are wider than the loop.
FORGE_QUANT_FN u64 load_bytes(const u8* in) {
  u64 word;
  copy_bytes<8>(&word, in);
  return word;
}
FORGE_QUANT_FN void store_bytes(u64 word, u8* out) {
  copy_bytes<8>(out, &word);
}
/// Unpacks 32 nibbles in Q4_0's order: the low nibbles of the 16 bytes are codes 0..15, the high nibbles codes 16..31.
FORGE_QUANT_FN void nibble_codes(const u8* qs, u8* codes) {
  for (int half = 0; half < 16; half += 8) {
    const u64 word = load_bytes(qs + half);
    store_bytes(word & 0x0f0f0f0f0f0f0f0fu, codes + half);
    store_bytes(word >> 4 & 0x0f0f0f0f0f0f0f0fu, codes + 16 + half);
  }
}

/// f(number) of ScaleKind, for the kinds with d.
FORGE_QUANT_FN int scale_factor(ScaleKind kind, u32 number) {
  switch (kind) {
    case ScaleKind::kSigned:
      return static_cast<i8>(number);
    case ScaleKind::kMinus32:
      return static_cast<int>(number) - 32;
    case ScaleKind::kOdd:
      return static_cast<int>(2 * number + 1);
    default:
      return static_cast<int>(number);
  }
}
/// 2^(number - 128): half the value of an E8M0 exponent. Exact: numbers 0 and 1 give the subnormals 2^-128 and 2^-127.
FORGE_QUANT_FN float half_of_e8m0(u32 number) {
  return f32_of_bits(number < 2 ? 0x00200000u << number : (number - 1) << 23);
}
/// A number of kE5M3 becomes the lowest exponent bits and the highest mantissa bits of an f32. This factor then moves
/// the exponent: exponent 1 stands for a scale of 2^-10.
inline constexpr float kE5M3Factor = 0x1p116f;
/// The scale of a kE5M3 number. 0 gives 0; exact, because other numbers have an exponent of 1 at least.
FORGE_QUANT_FN float scale_of_e5m3(u32 number) {
  return f32_of_bits(number << 20) * kE5M3Factor;
}

}  // namespace forge::quant
