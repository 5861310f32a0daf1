#pragma once
// Q4_K: 256 elements in 8 sub-blocks of 32, 144 bytes:
//   d, dmin     f16
//   scales[12]  6-bit scales and minima (k_scale, k_minimum)
//   qs[128]     nibbles; each 32 bytes hold two sub-blocks: byte i has element i of the first (low nibble)
//               and of the second (high nibble)
// value = d * scale * q - dmin * minimum. Source: ggml's block_q4_K as GGUF files carry it.

#include "kernels/quant/packing.h"

namespace forge::quant {

struct BlockQ4_K {
  static constexpr u32 kElems = 256, kSub = 32, kZero = 0;
  static constexpr bool kMinimum = true;
  static constexpr Packing kPacking{.low = 4, .high = 0, .halves = 2, .numbers = 2, .number_bits = 6};
  u16 d, dmin;
  u8 scales[12];
  u8 qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

/// 6-bit scale (k_scale) or minimum (k_minimum) of sub-block `part`, in Q4_K and Q5_K. The 12 bytes, high bits first:
///   byte 0..3    2 upper bits of scale part+4   | 6 bits of scale part     (part = byte)
///   byte 4..7    2 upper bits of minimum part+4 | 6 bits of minimum part   (part = byte - 4)
///   byte 8..11   4 lower bits of minimum part+4 | 4 lower bits of scale part+4   (part = byte - 8)
FORGE_QUANT_FN u32 k_scale(const u8* scales, u32 part) {
  return part < 4 ? scales[part] & 63u : (scales[part + 4] & 15u) | (scales[part - 4] >> 6) << 4;
}
FORGE_QUANT_FN u32 k_minimum(const u8* scales, u32 part) {
  return part < 4 ? scales[part + 4] & 63u : scales[part + 4] >> 4 | (scales[part] >> 6) << 4;
}
/// Unpacks 256 nibbles: of each 32 bytes first the low nibbles, then the high ones.
FORGE_QUANT_FN void raw_part_nibbles(const u8* qs, u8* raw) {
  for (int pair = 0; pair < 4; ++pair, qs += 32, raw += 64)
    for (int i = 0; i < 32; ++i) {
      raw[i] = qs[i] & 15u;
      raw[32 + i] = qs[i] >> 4;
    }
}

FORGE_QUANT_FN void raw_values(const BlockQ4_K& block, u8* raw) {
  raw_part_nibbles(block.qs, raw);
}
FORGE_QUANT_FN u16 f16_number(const BlockQ4_K& block, u32 part) {
  return part == 0 ? block.d : block.dmin;
}
FORGE_QUANT_FN u32 scale_number(const BlockQ4_K& block, u32 i) {
  return i % 2 == 0 ? k_scale(block.scales, i / 2) : k_minimum(block.scales, i / 2);
}

}  // namespace forge::quant
