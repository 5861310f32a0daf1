#pragma once
// Q3_K: 256 elements in 16 parts of 16: 32 bytes of third bits, 64 bytes of two bits (laid out as Q2_K's), 12 bytes of
// 6-bit scales, f16 d. Element 32j+i's third bit is bit j of byte i. Scale s has its low 4 bits in a nibble of byte s%8
// (low nibbles first) and its high 2 bits in byte 8+s%4, at bit 2*(s/4). value = d * (scale - 32) * (q - 4).
// Source: ggml's block_q3_K as GGUF files carry it.

#include "kernels/quant/q2_k.h"

namespace forge::quant {

struct BlockQ3_K {
  static constexpr u32 kElems = 256, kSub = 16, kZero = 4;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{
      .low = 2, .high = 1, .halves = 1, .numbers = 2, .number_bits = 6, .scale = ScaleKind::kLess32};
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
FORGE_QUANT_FN u16 half_number(const BlockQ3_K& block, u32) {
  return block.d;
}
FORGE_QUANT_FN u32 whole_number(const BlockQ3_K& block, u32 i) {
  return (block.scales[i % 8] >> (i / 8 * 4) & 15u) | (block.scales[8 + i % 4] >> (i / 4 * 2) & 3u) << 4;
}

}  // namespace forge::quant
