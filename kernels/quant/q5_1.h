#pragma once
// Q5_1: Q5_0 with a minimum, 24 bytes: f16 d, f16 m, 4 bytes of fifth bits, 16 bytes of nibbles. value = d * q + m.
// Source: ggml's block_q5_1 as GGUF files carry it.

#include "kernels/quant/q5_0.h"

namespace forge::quant {

struct BlockQ5_1 {
  static constexpr u32 kElems = 32, kSub = 32, kZero = 0;
  static constexpr bool kMinimum = true;
  static constexpr Packing kPacking{.low = 4, .high = 1, .halves = 2, .numbers = 0, .number_bits = 0};
  u16 d, m;
  u8 qh[4];
  u8 qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

FORGE_QUANT_FN void raw_values(const BlockQ5_1& block, u8* raw) {
  raw_nibbles_and_bits(block.qs, block.qh, raw);
}
FORGE_QUANT_FN u16 f16_number(const BlockQ5_1& block, u32 part) {
  return part == 0 ? block.d : block.m;
}

}  // namespace forge::quant
