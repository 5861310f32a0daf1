#pragma once
// TQ2_0: 256 ternary elements, 66 bytes: 64 bytes of 2-bit quants in Q2_K's order, and f16 d. value = d * (q - 1).
// Source: ggml's block_tq2_0 as GGUF files carry it.

#include "kernels/quant/q2_k.h"

namespace forge::quant {

struct BlockTQ2_0 {
  static constexpr u32 kElems = 256, kSub = 32, kZero = 1;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{.low = 2, .high = 0, .halves = 1, .numbers = 0, .number_bits = 0};
  u8 qs[64];
  u16 d;
};
static_assert(sizeof(BlockTQ2_0) == 66);

FORGE_QUANT_FN void raw_values(const BlockTQ2_0& block, u8* raw) {
  raw_two_bits(block.qs, raw);
}
FORGE_QUANT_FN u16 f16_number(const BlockTQ2_0& block, u32) {
  return block.d;
}

}  // namespace forge::quant
