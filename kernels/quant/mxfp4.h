#pragma once
// MXFP4: 32 elements, 17 bytes: an exponent byte e and 16 bytes of 4-bit codes in Q4_0's order. A code is E2M1: a sign,
// two exponent bits and one mantissa bit, for the values 0, 0.5, 1, 1.5, 2, 3, 4, 6. value = 2^(e-127) * E2M1(code).
// Here the levels are doubled, which makes them integers, and the scale is halved. Source: OCP Microscaling Formats
// (MX) 1.0; ggml's block_mxfp4 as GGUF files carry it (e = 255 is not NaN there).

#include "kernels/quant/iq4_nl.h"

namespace forge::quant {

/// The doubled values of the 16 codes plus 12, in the order of the codes.
inline constexpr u8 kMxfp4Levels[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

struct BlockMXFP4 {
  static constexpr u32 kElems = 32, kSub = 32, kZero = 12;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{
      .low = 4, .high = 0, .halves = 0, .numbers = 1, .number_bits = 8, .scale = ScaleKind::kExponent};
  static constexpr const u8 (&kLevels)[16] = kMxfp4Levels;
  u8 e;
  u8 qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

FORGE_QUANT_FN void code_values(const BlockMXFP4& block, u8* codes) {
  nibble_codes(block.qs, codes);
}
FORGE_QUANT_FN u32 scale_number(const BlockMXFP4& block, u32) {
  return block.e;
}

}  // namespace forge::quant
