#pragma once
// What the IQ2 and IQ3 types share: groups of magnitudes out of a grid, with a sign bit each.

#include "kernels/quant/f16.h"

namespace forge::quant {

/// 8 sign bits, of which files keep 7: their number is even.
FORGE_QUANT_FN u32 even_signs(u32 seven) {
  return seven | (static_cast<u32>(__builtin_popcount(seven)) & 1u) << 7;
}
/// Magnitudes as fields of `bits` bits of an entry; raw = zero -+ magnitude where the sign bit is 1 or 0.
FORGE_QUANT_FN void raw_signed(u32 entry, u32 bits, const u8* magnitudes, u32 signs, u32 zero, u32 count, u8* raw) {
  for (u32 i = 0; i < count; ++i) {
    const u32 magnitude = magnitudes[entry >> (bits * i) & ((1u << bits) - 1)];
    raw[i] = static_cast<u8>(signs >> i & 1u ? zero - magnitude : zero + magnitude);
  }
}
/// The scales of all of them: odd multiples of d.
FORGE_QUANT_FN float odd_scale(u16 d, u32 code, float unit) {
  return f32_of_f16(d) * static_cast<float>(2 * code + 1) * unit;
}

}  // namespace forge::quant
