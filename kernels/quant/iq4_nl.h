#pragma once
// IQ4_NL: 32 elements = f16 d and 16 bytes of codes in Q4_0's order. value = d * kIq4Levels[code], levels that lie
// denser about 0. Source: ggml's block_iq4_nl and kvalues_iq4nl as GGUF files carry them.

#include "kernels/quant/f16.h"

namespace forge::quant {

/// Levels of IQ4_NL and IQ4_XS, plus 128.
inline constexpr u8 kIq4Levels[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

struct BlockIQ4_NL {
  static constexpr u32 kElems = 32, kSub = 32, kZero = 128;
  static constexpr bool kMinimum = false;
  u16 d;
  u8 qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

/// 32 codes in Q4_0's order to the levels that they stand for.
FORGE_QUANT_FN void raw_levels(const u8* qs, const u8* levels, u8* raw) {
  for (int i = 0; i < 16; ++i) {
    raw[i] = levels[qs[i] & 15u];
    raw[16 + i] = levels[qs[i] >> 4];
  }
}
FORGE_QUANT_FN void raw_values(const BlockIQ4_NL& block, u8* raw) {
  raw_levels(block.qs, kIq4Levels, raw);
}
FORGE_QUANT_FN float sub_scale(const BlockIQ4_NL& block, u32) {
  return f32_of_f16(block.d);
}

}  // namespace forge::quant
