#pragma once
// Q6_K: 256 elements in 16 parts of 16: 128 bytes of low 4 bits, 64 bytes of high 2 bits, an int8 scale a part, f16 d.
// For each half of 128 elements, of 64 low and 32 high bytes: element 64n+i is nibble n of low byte i, and element
// 32n+i has bits 2n, 2n+1 of high byte i. value = d * scale * (q - 32). Source: ggml's block_q6_K as GGUF files carry
// it.

#include "kernels/quant/f16.h"

namespace forge::quant {

struct BlockQ6_K {
  static constexpr u32 kElems = 256, kSub = 16, kZero = 32;
  static constexpr bool kMinimum = false;
  u8 ql[128];
  u8 qh[64];
  i8 scales[16];
  u16 d;
};
static_assert(sizeof(BlockQ6_K) == 210);

FORGE_QUANT_FN void raw_values(const BlockQ6_K& block, u8* raw) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 128; ++i) {
      const u32 low = block.ql[64 * half + i % 64] >> (i / 64 * 4) & 15u;
      raw[128 * half + i] = static_cast<u8>(low | (block.qh[32 * half + i % 32] >> (i / 32 * 2) & 3u) << 4);
    }
}
FORGE_QUANT_FN float sub_scale(const BlockQ6_K& block, u32 sub) {
  return f32_of_f16(block.d) * static_cast<float>(block.scales[sub]);
}

}  // namespace forge::quant
