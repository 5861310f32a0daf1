#pragma once
// IQ4_NL: 32 elements, 18 bytes: f16 d and 16 bytes of 4-bit codes in Q4_0's order. value = d * kIq4Levels[code] with
// 16 levels that are denser near 0. Source: ggml's block_iq4_nl and kvalues_iq4nl as GGUF files carry them.

#include "kernels/quant/packing.h"

namespace forge::quant {

/// The levels of IQ4_NL and IQ4_XS plus 128, so that they are unsigned bytes.
inline constexpr u8 kIq4Levels[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

struct BlockIQ4_NL {
  static constexpr u32 kElems = 32, kSub = 32, kZero = 128;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{.low = 4, .high = 0, .halves = 1, .numbers = 0, .number_bits = 0};
  static constexpr const u8 (&kLevels)[16] = kIq4Levels;
  u16 d;
  u8 qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

FORGE_QUANT_FN void code_values(const BlockIQ4_NL& block, u8* codes) {
  nibble_codes(block.qs, codes);
}
FORGE_QUANT_FN u16 f16_number(const BlockIQ4_NL& block, u32) {
  return block.d;
}

}  // namespace forge::quant
