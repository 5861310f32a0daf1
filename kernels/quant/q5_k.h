#pragma once
// Q5_K: Q4_K with a fifth bit per element, 176 bytes:
//   d, dmin     f16
//   scales[12]  6-bit scales and minima, as in Q4_K
//   qh[32]      fifth bits: that of element 32j+i is bit j of byte i
//   qs[128]     nibbles, as in Q4_K
// value = d * scale * q - dmin * minimum. Source: ggml's block_q5_K as GGUF files carry it.

#include "kernels/quant/q4_k.h"

namespace forge::quant {

struct BlockQ5_K {
  static constexpr u32 kElems = 256, kSub = 32, kZero = 0;
  static constexpr bool kMinimum = true;
  static constexpr Packing kPacking{.low = 4, .high = 1, .halves = 2, .numbers = 2, .number_bits = 6};
  u16 d, dmin;
  u8 scales[12];
  u8 qh[32];
  u8 qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

FORGE_QUANT_FN void raw_values(const BlockQ5_K& block, u8* raw) {
  raw_part_nibbles(block.qs, raw);
  for (int part = 0; part < 8; ++part)
    for (int i = 0; i < 32; ++i)
      raw[32 * part + i] = static_cast<u8>(raw[32 * part + i] | (block.qh[i] >> part & 1u) << 4);
}
FORGE_QUANT_FN u16 f16_number(const BlockQ5_K& block, u32 part) {
  return part == 0 ? block.d : block.dmin;
}
FORGE_QUANT_FN u32 scale_number(const BlockQ5_K& block, u32 i) {
  return i % 2 == 0 ? k_scale(block.scales, i / 2) : k_minimum(block.scales, i / 2);
}

}  // namespace forge::quant
