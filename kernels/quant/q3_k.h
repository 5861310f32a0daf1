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
  u8 hmask[32];
  u8 qs[64];
  u8 scales[12];
  u16 d;
};
static_assert(sizeof(BlockQ3_K) == 110);

FORGE_QUANT_FN void raw_values(const BlockQ3_K& block, u8* raw) {
  raw_two_bits(block.qs, raw);
  for (int i = 0; i < 256; ++i) raw[i] = static_cast<u8>(raw[i] | (block.hmask[i % 32] >> (i / 32) & 1u) << 2);
}
FORGE_QUANT_FN float sub_scale(const BlockQ3_K& block, u32 sub) {
  const u32 low = block.scales[sub % 8] >> (sub / 8 * 4) & 15u, high = block.scales[8 + sub % 4] >> (sub / 4 * 2) & 3u;
  return f32_of_f16(block.d) * static_cast<float>(static_cast<int>(low | high << 4) - 32);
}

}  // namespace forge::quant
