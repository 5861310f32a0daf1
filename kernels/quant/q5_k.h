#pragma once
// Q5_K: Q4_K with a fifth bit: f16 d, f16 dmin, 12 bytes of scales and minima, 32 bytes of fifth bits (element 32j+i:
// bit j of byte i), 128 bytes of quants. value = d * scale * q - dmin * minimum. Source: ggml's block_q5_K as GGUF
// files carry it.

#include "kernels/quant/q4_k.h"

namespace forge::quant {

struct BlockQ5_K {
  static constexpr u32 kElems = 256, kSub = 32, kZero = 0;
  static constexpr bool kMinimum = true;
  u16 d, dmin;
  u8 scales[12];
  u8 qh[32];
  u8 qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

FORGE_QUANT_FN void raw_values(const BlockQ5_K& block, u8* raw) {
  raw_part_nibbles(block.qs, raw);
  for (int i = 0; i < 256; ++i) raw[i] = static_cast<u8>(raw[i] | (block.qh[i % 32] >> (i / 32) & 1u) << 4);
}
FORGE_QUANT_FN float sub_scale(const BlockQ5_K& block, u32 sub) {
  return f32_of_f16(block.d) * static_cast<float>(k_scale(block.scales, sub));
}
FORGE_QUANT_FN float sub_offset(const BlockQ5_K& block, u32 sub) {
  return -(f32_of_f16(block.dmin) * static_cast<float>(k_minimum(block.scales, sub)));
}

}  // namespace forge::quant
