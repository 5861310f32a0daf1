#pragma once
// q8a_16, activations as GPU kernels multiply them with quantised weights: a row of K elements (a multiple of 32) is
//   [K] int8, then for each block of 16 a u32: bf16 scale in its low half, the sum of the block's int8 in its high
//   half,
// padded to 64 bytes. value = scale * q. The scale is amax/127 rounded up to bf16, so q is within [-127, 127]; a block
// whose elements are not all finite has scale NaN and q 0, so that the trouble is seen and not hidden.
// Blocks of 16, because 16 columns are what a block of the grid makes: nobody waits for a neighbour to quantise.

#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

inline constexpr int kQuantBlock = 16;

template <int K>
struct Q8Rows {
  static_assert(K % 32 == 0, "quantised activations have a multiple of 32 columns");
  static constexpr u64 kMeta = K;
  static constexpr u64 kRowBytes = (static_cast<u64>(K) + K / 4 + 63) / 64 * 64;
};

FORGE_DEVICE float bf16_scale(u32 meta) {
  return __builtin_bit_cast(float, meta << 16);
}
FORGE_DEVICE i32 quant_sum(u32 meta) {
  return static_cast<i32>(meta) >> 16;
}
FORGE_DEVICE u32 pack_meta(u32 bf16_bits, i32 sum) {
  return bf16_bits | static_cast<u32>(sum) << 16;
}

/// One element of a block that 16 neighbouring lanes hold; all lanes of the wave call this together, and each lane's
/// `value` counts. Lanes of a block that `real` (the same in its 16 lanes) names write it: row is the row's start.
template <int K>
FORGE_DEVICE void quantise_block(u8* row, int column, float value, bool real) {
  const float magnitude = abs_of(value);
  const bool finite = magnitude <= 3.402823466e38f;  // false for NaN
  const float amax = max_lanes<kQuantBlock>(finite ? magnitude : 0.0f);
  const bool trouble = max_lanes<kQuantBlock>(finite ? 0 : 1) != 0;
  const u32 up = (__builtin_bit_cast(u32, amax * (1.0f / 127.0f)) + 0xffffu) >> 16;  // towards +infinity
  const float scale = __builtin_bit_cast(float, up << 16);
  const bool plain = !trouble && scale > 1e-30f;  // smaller ones have no reciprocal
  const float rounded = plain ? round_of(value * (1.0f / scale)) : 0.0f;
  const i32 quant = static_cast<i32>(min_of(max_of(rounded, -127.0f), 127.0f));
  const i32 sum = sum_lanes<kQuantBlock>(quant);
  if (!real) return;
  row[column] = static_cast<u8>(quant);
  if (column % kQuantBlock == 0)
    reinterpret_cast<u32*>(row + Q8Rows<K>::kMeta)[column / kQuantBlock] = pack_meta(trouble ? 0x7fc0u
                                                                                     : plain ? up
                                                                                             : 0u,
                                                                                     sum);
}

}  // namespace forge::gpu
