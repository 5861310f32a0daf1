#pragma once
// NVFP4: 64 elements in 4 sub-blocks of 16, 36 bytes:
//   d[4]    a scale per sub-block: E4M3 (4 exponent bits with bias 7, 3 mantissa bits) without a sign
//   qs[32]  8 bytes of E2M1 codes per sub-block (mxfp4.h): byte i has element i (low nibble) and element 8 + i
// value = d * E2M1(code). As in MXFP4 the levels are doubled and the scale is halved. d = 0x7f, E4M3's NaN, counts as
// 0. Files may have a further factor for the whole tensor, which the model's graph applies (loader/arch). Source:
// NVIDIA, "Introducing NVFP4"; ggml's block_nvfp4 as GGUF files carry it.

#include "kernels/quant/mxfp4.h"

namespace forge::quant {

struct BlockNVFP4 {
  static constexpr u32 kElems = 64, kSub = 16, kZero = 12;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{
      .low = 4, .high = 0, .halves = 0, .numbers = 2, .number_bits = 8, .scale = ScaleKind::kE5M3};
  static constexpr const u8 (&kLevels)[16] = kMxfp4Levels;
  u8 d[4];
  u8 qs[32];
};
static_assert(sizeof(BlockNVFP4) == 36);

FORGE_QUANT_FN void code_values(const BlockNVFP4& block, u8* codes) {
  for (int sub = 0; sub < 4; ++sub) {
    const u64 word = load_bytes(block.qs + 8 * sub);
    store_bytes(word & 0x0f0f0f0f0f0f0f0fu, codes + 16 * sub);
    store_bytes(word >> 4 & 0x0f0f0f0f0f0f0f0fu, codes + 16 * sub + 8);
  }
}
/// The scale of sub-block i as E5M3. One more exponent bit makes the subnormal numbers of E4M3 normal, so kernels need
/// no case for them: m * 2^-9 for m = 1, 2..3, 4..7 gets the exponents 1, 2, 3 of E5M3, and exponents 1..15
/// become 4..18.
FORGE_QUANT_FN u32 scale_number(const BlockNVFP4& block, u32 i) {
  const u32 number = block.d[i] == 0x7f ? 0u : block.d[i] & 0x7fu;
  if (number >= 8) return number + (3u << 3);
  if (number >= 4) return 3u << 3 | (number & 3u) << 1;
  if (number >= 2) return 2u << 3 | (number & 1u) << 2;
  return number << 3;
}

}  // namespace forge::quant
