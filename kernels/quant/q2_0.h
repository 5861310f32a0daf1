#pragma once
// Q2_0: 64 elements, 18 bytes: f16 d and 16 bytes of 2-bit quants, four to a byte, the lowest bits first.
// value = d * (q - 1). Source: ggml's block_q2_0 as GGUF files carry it.

#include "kernels/quant/packing.h"

namespace forge::quant {

struct BlockQ2_0 {
  static constexpr u32 kElems = 64, kSub = 32, kZero = 1;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{.low = 2, .high = 0, .halves = 1, .numbers = 0, .number_bits = 0};
  u16 d;
  u8 qs[16];
};
static_assert(sizeof(BlockQ2_0) == 18);

FORGE_QUANT_FN void raw_values(const BlockQ2_0& block, u8* raw) {
  for (u32 i = 0; i < 64; ++i) raw[i] = static_cast<u8>(block.qs[i / 4] >> (i % 4 * 2) & 3);
}
FORGE_QUANT_FN u16 f16_number(const BlockQ2_0& block, u32) {
  return block.d;
}

}  // namespace forge::quant
