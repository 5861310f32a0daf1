#pragma once
// IQ4_XS: 256 elements in 8 sub-blocks of 32, 136 bytes:
//   d            f16
//   scales_h[2]  high 2 bits of the sub-blocks' 6-bit scales
//   scales_l[4]  low 4 bits of the scales
//   qs[128]      16 bytes of codes per sub-block, as in IQ4_NL
// value = d * (scale - 32) * level. Source: ggml's block_iq4_xs as GGUF files carry it.

#include "kernels/quant/iq4_nl.h"

namespace forge::quant {

struct BlockIQ4_XS {
  static constexpr u32 kElems = 256, kSub = 32, kZero = 128;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{
      .low = 4, .high = 0, .halves = 1, .numbers = 1, .number_bits = 6, .scale = ScaleKind::kMinus32};
  static constexpr const u8 (&kLevels)[16] = kIq4Levels;
  u16 d;
  u8 scales_h[2];
  u8 scales_l[4];
  u8 qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

FORGE_QUANT_FN void code_values(const BlockIQ4_XS& block, u8* codes) {
  for (int part = 0; part < 8; ++part) nibble_codes(block.qs + 16 * part, codes + 32 * part);
}
FORGE_QUANT_FN u16 f16_number(const BlockIQ4_XS& block, u32) {
  return block.d;
}
FORGE_QUANT_FN u32 scale_number(const BlockIQ4_XS& block, u32 i) {
  return (block.scales_l[i / 2] >> (i % 2 * 4) & 15u) | (block.scales_h[i / 4] >> (i % 4 * 2) & 3u) << 4;
}

}  // namespace forge::quant
