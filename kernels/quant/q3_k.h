#pragma once
// Q3_K: 256 elements in 16 sub-blocks of 16, 110 bytes:
//   hmask[32]   third bit of each element: that of element 32j+i is bit j of byte i
//   qs[64]      low two bits, in Q2_K's order
//   scales[12]  6-bit scales: the low 4 bits of scale s are in byte s % 8 (low nibble for s < 8),
//               the high 2 bits in byte 8 + s % 4, at bit 2 * (s / 4)
//   d           f16
// value = d * (scale - 32) * (q - 4). Source: ggml's block_q3_K as GGUF files carry it.

#include "kernels/quant/q2_k.h"

namespace forge::quant {

struct BlockQ3_K {
  static constexpr u32 kElems = 256, kSub = 16, kZero = 4;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{
      .low = 2, .high = 1, .halves = 1, .numbers = 2, .number_bits = 6, .scale = ScaleKind::kMinus32};
  u8 hmask[32];
  u8 qs[64];
  u8 scales[12];
  u16 d;
};
static_assert(sizeof(BlockQ3_K) == 110);

FORGE_QUANT_FN void raw_values(const BlockQ3_K& block, u8* raw) {
  raw_two_bits(block.qs, raw);
  for (int part = 0; part < 8; ++part)
    for (int i = 0; i < 32; ++i)
      raw[32 * part + i] = static_cast<u8>(raw[32 * part + i] | (block.hmask[i] >> part & 1u) << 2);
}
FORGE_QUANT_FN u16 f16_number(const BlockQ3_K& block, u32) {
  return block.d;
}
FORGE_QUANT_FN u32 scale_number(const BlockQ3_K& block, u32 i) {
  return (block.scales[i % 8] >> (i / 8 * 4) & 15u) | (block.scales[8 + i % 4] >> (i / 4 * 2) & 3u) << 4;
}

}  // namespace forge::quant
