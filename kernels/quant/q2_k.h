#pragma once
// Q2_K: 256 elements in 16 sub-blocks of 16, 84 bytes:
//   scales[16]  per sub-block a byte: scale (low nibble) and minimum (high nibble)
//   qs[64]      2-bit quants; each 32 bytes hold 128 elements: element 32j+i is bits 2j, 2j+1 of byte i
//   d, dmin     f16
// value = d * scale * q - dmin * minimum. Source: ggml's block_q2_K as GGUF files carry it.

#include "kernels/quant/packing.h"

namespace forge::quant {

struct BlockQ2_K {
  static constexpr u32 kElems = 256, kSub = 16, kZero = 0;
  static constexpr bool kMinimum = true;
  static constexpr Packing kPacking{.low = 2, .high = 0, .halves = 2, .numbers = 4, .number_bits = 4};
  u8 scales[16];
  u8 qs[64];
  u16 d, dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

/// Unpacks 256 elements of 2 bits in Q2_K's order, which Q3_K and TQ2_0 share.
FORGE_QUANT_FN void raw_two_bits(const u8* qs, u8* raw) {
  for (int part = 0; part < 8; ++part)
    for (int i = 0; i < 32; ++i) raw[32 * part + i] = qs[part / 4 * 32 + i] >> (part % 4 * 2) & 3u;
}
FORGE_QUANT_FN void raw_values(const BlockQ2_K& block, u8* raw) {
  raw_two_bits(block.qs, raw);
}
FORGE_QUANT_FN u16 f16_number(const BlockQ2_K& block, u32 part) {
  return part == 0 ? block.d : block.dmin;
}
FORGE_QUANT_FN u32 scale_number(const BlockQ2_K& block, u32 i) {
  return block.scales[i / 2] >> (i % 2 * 4) & 15u;
}

}  // namespace forge::quant
