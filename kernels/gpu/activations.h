#pragma once
// q8a_16: the format of activations that GPU kernels multiply with quantised weights. value = scale * q, in blocks
// of 16. A row of K elements (K a multiple of 32) is padded to 64 bytes:
//
//   byte 0                     K                                             K + K / 4
//   | K quants, int8           | K / 16 words: bf16 scale | sum of quants    | padding |
//                                             bits 0..15    bits 16..31, signed
//
// The scale is max|x| / 127, rounded up to bf16, so that |q| <= 127. If a block has NaN or infinite elements, its scale
// is NaN and its quants are 0, so that the error shows in the results. The sums serve formats with minima and offsets.
// Blocks have 16 elements because 16 neighbouring lanes make 16 results (tile.h): an epilogue can quantise without
// waiting for other blocks of the grid.
//
// q16a_16: activations of 16 bits, for matmuls on which a choice of experts depends. A row is two rows of q8a_16, its
// terms, one after another; its elements are the sums of theirs. With quants q = round(x / scale), |q| <= 127 * 257,
// the first term has the upper bytes and 256 * scale, the second one the lower bytes, as signed numbers, and scale.
// Elements are clamped to +-kWideMost, so that matrix tiles can hold them in F16 (formats.h).

#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

inline constexpr int kQuantBlock = 16;

/// Layout of a row of K elements, or of one of its terms.
template <int K>
struct Q8Rows {
  static_assert(K % 32 == 0, "quantised activations: k must be a multiple of 32");
  static constexpr u64 kMeta = K;
  static constexpr u64 kRowBytes = (static_cast<u64>(K) + K / 4 + 63) / 64 * 64;
};

/// Formats of a row: the number of its terms, or 16-bit numbers for matrix tiles (matmul_tiles.h). F16A is F16 of the
/// numbers times kF16AScale (ScaledF16 in formats.h), BF16 and F16 are what they say.
inline constexpr int kRowF16A = 16, kRowBf16 = 17, kRowF16 = 18;
template <int K, int Format>
FORGE_DEVICE constexpr u64 row_bytes_of() {
  return Format >= kRowF16A ? static_cast<u64>(K) * 2 : Format * Q8Rows<K>::kRowBytes;
}

inline constexpr float kF16AScale = 0x1p-4f;
inline constexpr float kWideMost = 65504.0f / kF16AScale;  ///< largest magnitude of an element of q16a_16

FORGE_DEVICE float bf16_scale(u32 meta) {
  return __builtin_bit_cast(float, meta << 16);
}
FORGE_DEVICE i32 quant_sum(u32 meta) {
  return static_cast<i32>(meta) >> 16;
}
FORGE_DEVICE u32 pack_meta(u32 bf16_bits, i32 sum) {
  return bf16_bits | static_cast<u32>(sum) << 16;
}

/// Stores the lane's quant of a block, and its first lane the block's scale and sum.
template <int K>
FORGE_DEVICE void store_quant(u8* row, int column, i32 quant, u32 bf16_bits, bool real) {
  const i32 sum = sum_lanes<kQuantBlock>(quant);
  if (!real) return;
  row[column] = static_cast<u8>(quant);
  if (column % kQuantBlock == 0)
    reinterpret_cast<u32*>(row + Q8Rows<K>::kMeta)[column / kQuantBlock] = pack_meta(bf16_bits, sum);
}

/// Rounds two floats to f16 and packs them. Finite numbers beyond the range are clamped to the largest f16, 65504;
/// infinities and NaN stay what they are.
FORGE_DEVICE float within_f16(float x) {
  constexpr float kMost = 65504.0f, kFinite = 3.402823466e38f;
  const float within = min_of(max_of(x, -kMost), kMost);
  return abs_of(x) <= kFinite ? within : x;
}
FORGE_DEVICE u32 clamped_f16_pair(float low, float high) {
  return f16_pair(within_f16(low), within_f16(high));
}

/// Quantises a block of 16 elements that 16 neighbouring lanes hold, one each, and writes it if `real` (which must be
/// the same in the 16 lanes). Terms: 1 for q8a_16, 2 for q16a_16. row: start of the row; column: of this lane's
/// element. All lanes of the wave call this together.
template <int K, int Terms = 1>
FORGE_DEVICE void quantise_block(u8* row, int column, float value, bool real) {
  static_assert(Terms == 1 || Terms == 2, "rows have one or two terms");
  constexpr float kMost = Terms == 1 ? 127.0f : 127.0f * 257.0f;
  const bool finite = abs_of(value) <= 3.402823466e38f;  // false for NaN
  if constexpr (Terms == 2) value = min_of(max_of(value, -kWideMost), kWideMost);
  const float amax = max_lanes<kQuantBlock>(finite ? abs_of(value) : 0.0f);
  const bool trouble = max_lanes<kQuantBlock>(finite ? 0 : 1) != 0;
  const u32 up = (__builtin_bit_cast(u32, amax * (1.0f / kMost)) + 0xffffu) >> 16;  // bf16, rounded towards +infinity
  const float scale = __builtin_bit_cast(float, up << 16);
  const bool plain = !trouble && scale > 1e-30f;  // the reciprocal of smaller scales could overflow: all quants are 0
  const float rounded = plain ? round_of(value * (1.0f / scale)) : 0.0f;
  const i32 quant = static_cast<i32>(min_of(max_of(rounded, -kMost), kMost));
  const u32 bits = trouble ? 0x7fc0u : plain ? up : 0u;
  if constexpr (Terms == 1) {
    store_quant<K>(row, column, quant, bits, real);
  } else {
    const i32 upper = (quant + 128) >> 8;
    constexpr u32 kEight = 8u << 7;  // added to a bf16's exponent: times 256
    store_quant<K>(row, column, upper, plain ? bits + kEight : bits, real);
    store_quant<K>(row + Q8Rows<K>::kRowBytes, column, quant - upper * 256, bits, real);
  }
}

/// Writes an element of a row in the format; quantised blocks as quantise_block. All rows together are smaller than
/// 4 GiB.
template <int K, int Format>
FORGE_DEVICE void store_activation(u8* rows, int t, int column, float value, bool real) {
  if constexpr (Format < kRowF16A) {
    u8* row = element(rows, static_cast<u32>(t) * static_cast<u32>(row_bytes_of<K, Format>()));
    quantise_block<K, Format>(row, column, value, real);
  } else {
    u32 bits = 0;
    if constexpr (Format == kRowBf16)
      bits = bf16_pair(value, 0.0f);
    else
      bits = f16_of_f32(within_f16(Format == kRowF16A ? value * kF16AScale : value));
    if (real) *element(reinterpret_cast<u16*>(rows), static_cast<u32>(t * K + column)) = static_cast<u16>(bits);
  }
}

}  // namespace forge::gpu
