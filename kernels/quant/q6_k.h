#pragma once
// Q6_K: 256 elements in 16 sub-blocks of 16, 210 bytes:
//   ql[128]     low 4 bits; each 64 bytes hold 128 elements: element 64n+i is nibble n of byte i
//   qh[64]      high 2 bits; each 32 bytes hold the same 128 elements: element 32n+i is bits 2n, 2n+1 of byte i
//   scales[16]  int8
//   d           f16
// value = d * scale * (q - 32). Source: ggml's block_q6_K as GGUF files carry it.

#include "kernels/quant/packing.h"

namespace forge::quant {

struct BlockQ6_K {
  static constexpr u32 kElems = 256, kSub = 16, kZero = 32;
  static constexpr bool kMinimum = false;
  static constexpr Packing kPacking{
      .low = 4, .high = 2, .halves = 1, .numbers = 2, .number_bits = 8, .scale = ScaleKind::kSigned};
  u8 ql[128];
  u8 qh[64];
  i8 scales[16];
  u16 d;
};
static_assert(sizeof(BlockQ6_K) == 210);

FORGE_QUANT_FN void raw_values(const BlockQ6_K& block, u8* raw) {
  for (int part = 0; part < 8; ++part)
    for (int i = 0; i < 32; ++i) {
      const u32 low = block.ql[part / 4 * 64 + part % 2 * 32 + i] >> (part % 4 / 2 * 4) & 15u;
      raw[32 * part + i] = static_cast<u8>(low | (block.qh[part / 4 * 32 + i] >> (part % 4 * 2) & 3u) << 4);
    }
}
FORGE_QUANT_FN u16 f16_number(const BlockQ6_K& block, u32) {
  return block.d;
}
FORGE_QUANT_FN u32 scale_number(const BlockQ6_K& block, u32 i) {
  return static_cast<u8>(block.scales[i]);
}

}  // namespace forge::quant
