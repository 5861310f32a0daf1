#pragma once
// IQ1_M: 256 elements in 16 sub-blocks of 16, 56 bytes:
//   qs[32]     low 8 bits of the 32 entries of IQ1_S's grid (8 ternary elements each)
//   qh[16]     per entry a nibble: 3 high bits of the entry, and the sign of its delta
//   scales[8]  4 words of 16 bits: four 3-bit scales, and on top 4 bits of the f16 d, its lowest bits in word 0
// value = d * (2 scale + 1) * (element +- 1/8). Here it is computed as (d / 8) * (2 scale + 1) * (8 element +- 1), so
// that raw values are integers. Source: ggml's block_iq1_m as GGUF files carry it.

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

/// Little-endian 16-bit word `word` of the scales.
FORGE_QUANT_FN u32 scale_word(const BlockIQ1_M& block, u32 word) {
  return block.scales[2 * word] | static_cast<u32>(block.scales[2 * word + 1]) << 8;
}
/// The f16 d, collected from the top nibbles of the four words.
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
FORGE_QUANT_FN u16 f16_number(const BlockIQ1_M& block, u32) {
  return super_scale(block);
}
FORGE_QUANT_FN u32 scale_number(const BlockIQ1_M& block, u32 i) {
  return scale_word(block, i / 4) >> (i % 4 * 3) & 7u;
}

}  // namespace forge::quant
