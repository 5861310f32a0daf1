#pragma once
// TQ1_0: 256 ternary elements, 54 bytes:
//   qs[48]  five base-3 digits per byte. Bytes 0..31: digit n of byte i is element 32n+i. Bytes 32..47: 160+16n+i
//   qh[4]   four digits per byte: digit n of byte i is element 240+4n+i
//   d       f16
// value = d * (digit - 1). A byte is the base-3 fraction 0.d0 d1 d2 d3 d4, scaled to 256 and rounded up, so that
// multiplying by 3 moves digit 0 into bits 8 and 9, the next multiplication digit 1, and so on. Source: ggml's
// block_tq1_0 as GGUF files carry it.

#include "kernels/quant/packing.h"

namespace forge::quant {

struct BlockTQ1_0 {
  static constexpr u32 kElems = 256, kSub = 32, kZero = 1;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{.low = 2, .high = 0, .halves = 1, .numbers = 0, .number_bits = 0};
  u8 qs[48];
  u8 qh[4];
  u16 d;
};
static_assert(sizeof(BlockTQ1_0) == 54);

/// Extracts `digits` digits of each of `count` bytes. raw[count * n + i] is digit n of byte i, 0..2.
FORGE_QUANT_FN void raw_digits(const u8* bytes, int count, int digits, u8* raw) {
  for (int i = 0; i < count; ++i) {
    u32 rest = bytes[i];
    for (int n = 0; n < digits; ++n) {
      raw[count * n + i] = static_cast<u8>(rest * 3 >> 8);
      rest = rest * 3 & 255u;
    }
  }
}
FORGE_QUANT_FN void raw_values(const BlockTQ1_0& block, u8* raw) {
  raw_digits(block.qs, 32, 5, raw);
  raw_digits(block.qs + 32, 16, 5, raw + 160);
  raw_digits(block.qh, 4, 4, raw + 240);
}
FORGE_QUANT_FN u16 f16_number(const BlockTQ1_0& block, u32) {
  return block.d;
}

}  // namespace forge::quant
