#pragma once
// IQ4_XS: 256 elements in 8 parts of 32: f16 d, 16 bits with the high 2 bits of the parts' scales, 4 bytes with their
// low 4 bits, then each part's 16 bytes of codes as IQ4_NL's. value = d * (scale - 32) * level. Source: ggml's
// block_iq4_xs as GGUF files carry it.

#include "kernels/quant/iq4_nl.h"

namespace forge::quant {

struct BlockIQ4_XS {
  static constexpr u32 kElems = 256, kSub = 32, kZero = 128;
  static constexpr bool kMinimum = false;
  u16 d;
  u8 scales_h[2];
  u8 scales_l[4];
  u8 qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

FORGE_QUANT_FN void raw_values(const BlockIQ4_XS& block, u8* raw) {
  for (int part = 0; part < 8; ++part) raw_levels(block.qs + 16 * part, kIq4Levels, raw + 32 * part);
}
FORGE_QUANT_FN float sub_scale(const BlockIQ4_XS& block, u32 sub) {
  const u32 low = block.scales_l[sub / 2] >> (sub % 2 * 4) & 15u, high = block.scales_h[sub / 4] >> (sub % 4 * 2) & 3u;
  return f32_of_f16(block.d) * static_cast<float>(static_cast<int>(low | high << 4) - 32);
}

}  // namespace forge::quant
