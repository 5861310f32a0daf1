#pragma once
// Q5_0: 32 elements, 22 bytes: f16 d, 4 bytes of fifth bits (bit i is element i's) and 16 bytes of nibbles. Byte i of
// these holds the low 4 bits of element i (low nibble) and of element 16+i (high nibble). value = d * (q - 16). Source:
// ggml's block_q5_0 as GGUF files carry it.

#include "kernels/quant/packing.h"

namespace forge::quant {

struct BlockQ5_0 {
  static constexpr u32 kElems = 32, kSub = 32, kZero = 16;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{.low = 4, .high = 1, .halves = 1, .numbers = 0, .number_bits = 0};
  u16 d;
  u8 qh[4];
  u8 qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

/// Unpacks 32 elements: nibbles in Q4_0's order and their fifth bits.
FORGE_QUANT_FN void raw_nibbles_and_bits(const u8* qs, const u8* qh, u8* raw) {
  nibble_codes(qs, raw);
  for (int i = 0; i < 4; ++i) store_bytes(load_bytes(raw + 8 * i) | bytes_of_bits(qh[i]) << 4, raw + 8 * i);
}
FORGE_QUANT_FN void raw_values(const BlockQ5_0& block, u8* raw) {
  raw_nibbles_and_bits(block.qs, block.qh, raw);
}
FORGE_QUANT_FN u16 f16_number(const BlockQ5_0& block, u32) {
  return block.d;
}

}  // namespace forge::quant
