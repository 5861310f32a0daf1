#pragma once
// IQ1_M: 256 elements in 16 parts of 16: 32 bytes with the low 8 bits of entries of IQ1_S's grid, 16 bytes of nibbles
// (3 high bits of an entry and the sign of its delta), 4 times 16 bits: four 3-bit scales, and 4 bits of the f16 d on
// top, its lowest first. value = d * (2 scale + 1) * (element +- 1/8): here an eighth of that scale times 8 element
// +- 1. Source: ggml's block_iq1_m as GGUF files carry it.

#include "kernels/quant/iq1_s.h"

namespace forge::quant {

struct BlockIQ1_M {
  static constexpr u32 kElems = 256, kSub = 16, kZero = 9;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{
      .low = 4, .high = 0, .halves = 1, .numbers = 2, .number_bits = 4, .scale = ScaleKind::kOdd, .unit = 0.125f};
  static constexpr const u8 (&kLevels)[16] = kIq1Levels;
  u8 qs[32];
  u8 qh[16];
  u8 scales[8];
};
static_assert(sizeof(BlockIQ1_M) == 56);

FORGE_QUANT_FN u32 scale_word(const BlockIQ1_M& block, u32 word) {
  return block.scales[2 * word] | static_cast<u32>(block.scales[2 * word + 1]) << 8;
}
FORGE_QUANT_FN u16 super_scale(const BlockIQ1_M& block) {
  u32 d = 0;
  for (u32 word = 0; word < 4; ++word) d |= scale_word(block, word) >> 12 << (4 * word);
  return static_cast<u16>(d);
}
FORGE_QUANT_FN void code_values(const BlockIQ1_M& block, u8* codes) {
  GridGroups groups;
  for (u32 i = 0; i < 32; ++i) {
    const u32 nibble = block.qh[i / 2] >> (i % 2 * 4) & 15u;
    groups.entries[i] = kIq1Grid[block.qs[i] | (nibble & 7u) << 8];
    groups.signs[i] = nibble >> 3;
  }
  iq1_codes(groups, codes);
}
FORGE_QUANT_FN u16 half_number(const BlockIQ1_M& block, u32) {
  return super_scale(block);
}
FORGE_QUANT_FN u32 whole_number(const BlockIQ1_M& block, u32 i) {
  return scale_word(block, i / 4) >> (i % 4 * 3) & 7u;
}

}  // namespace forge::quant
