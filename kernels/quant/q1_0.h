#pragma once
// Q1_0: 128 elements, 18 bytes: f16 d and 16 bytes of sign bits, the lowest bit of a byte first. Element i is d if bit
// i is set and -d if it is clear. Here the bits become raw values 2 and 0 with kZero = 1. Source: ggml's block_q1_0 as
// GGUF files carry it.

#include "kernels/quant/packing.h"

namespace forge::quant {

struct BlockQ1_0 {
  static constexpr u32 kElems = 128, kSub = 32, kZero = 1;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{.low = 2, .high = 0, .halves = 1, .numbers = 0, .number_bits = 0};
  u16 d;
  u8 qs[16];
};
static_assert(sizeof(BlockQ1_0) == 18);

FORGE_QUANT_FN void raw_values(const BlockQ1_0& block, u8* raw) {
  for (int i = 0; i < 16; ++i) store_bytes(2 * bytes_of_bits(block.qs[i]), raw + 8 * i);
}
FORGE_QUANT_FN u16 f16_number(const BlockQ1_0& block, u32) {
  return block.d;
}

}  // namespace forge::quant
