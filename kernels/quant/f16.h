#pragma once
// Conversions of IEEE binary16 (f16) and bfloat16 bit patterns to and from f32, for host and device. They are written
// with integer operations so that every compiler gives the same bits. Narrowing rounds to nearest, ties to even.
// Overflow gives infinity, a NaN stays a (quiet) NaN, and subnormals are kept.
//
//   f32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm   bias 127
//   f16   s eeeee mmmmmmmmmm                   bias 15: 3 exponent bits and 13 mantissa bits fewer
//   bf16  s eeeeeeee mmmmmmm                   bias 127: the upper half of an f32

#include "kernels/quant/portable.h"

namespace forge::quant {

FORGE_QUANT_FN float f32_of_bits(u32 bits) {
  return __builtin_bit_cast(float, bits);
}
FORGE_QUANT_FN u32 bits_of_f32(float value) {
  return __builtin_bit_cast(u32, value);
}

/// Exact: every f16 value is an f32 value.
FORGE_QUANT_FN float f32_of_f16(u16 half) {
  const u32 sign = static_cast<u32>(half & 0x8000u) << 16;
  const u32 magnitude = half & 0x7fffu;
  if (magnitude < 0x0400u) {  // zero or subnormal: magnitude * 2^-24, exact in f32
    return f32_of_bits(sign | bits_of_f32(static_cast<float>(magnitude) * 0x1p-24f));
  }
  if (magnitude >= 0x7c00u) {  // infinity or NaN
    const u32 quiet = magnitude > 0x7c00u ? 0x00400000u : 0u;
    return f32_of_bits(sign | 0x7f800000u | quiet | ((magnitude & 0x03ffu) << 13));
  }
  return f32_of_bits(sign | ((magnitude + ((127u - 15u) << 10)) << 13));
}

/// Adding 0x0fff plus the lowest kept bit before the shift by 13 rounds to nearest even. A carry out of the mantissa
/// increments the exponent, which is the right result.
FORGE_QUANT_FN u16 f16_of_f32(float value) {
  const u32 bits = bits_of_f32(value);
  const u16 sign = static_cast<u16>((bits >> 16) & 0x8000u);
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<u16>(sign | 0x7e00u | ((magnitude >> 13) & 0x03ffu));
  if (magnitude >= 0x477ff000u) return static_cast<u16>(sign | 0x7c00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 makes the FPU round at the last subnormal bit, 2^-24
    const float shifted = f32_of_bits(magnitude) + 0.5f;
    return static_cast<u16>(sign | (bits_of_f32(shifted) - 0x3f000000u));
  }
  const u32 odd = (magnitude >> 13) & 1u;
  return static_cast<u16>(sign | ((magnitude - ((127u - 15u) << 23) + 0x0fffu + odd) >> 13));
}

FORGE_QUANT_FN float f32_of_bf16(u16 brain) {
  return f32_of_bits(static_cast<u32>(brain) << 16);
}

/// Rounds like f16_of_f32, with a shift by 16. NaNs go first: rounding could carry a NaN's mantissa into infinity.
FORGE_QUANT_FN u16 bf16_of_f32(float value) {
  const u32 bits = bits_of_f32(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<u16>((bits >> 16) | 0x0040u);
  return static_cast<u16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace forge::quant
