#pragma once
// Conversions of 8-bit floats with three bits of mantissa (E4M3) to and from f32, for the host and for expected
// results: GPUs that have these types use instructions. Narrowing rounds to nearest, ties to even, and saturates:
// infinities too become the largest number. A NaN stays a NaN, and subnormals are kept.
//
//   s eeee mmm   OCP    bias 7, largest number 448, NaN s.1111.111       (OCP 8-bit Floating Point Specification)
//                FNUZ   bias 8, largest number 240, NaN 1.0000.000, and no negative zero                    (gfx942)

#include "kernels/quant/f16.h"

namespace forge::quant {

template <bool Fnuz>
struct E4M3 {
  static constexpr u32 kBias = Fnuz ? 8 : 7;
  static constexpr float kMost = Fnuz ? 240.0f : 448.0f;
  static constexpr u8 kNan = Fnuz ? 0x80 : 0x7f;

  /// Exact: every such number is an f16 number, and an f32 number.
  static float to_f32(u8 bits) {
    const u32 sign = static_cast<u32>(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    if (Fnuz ? bits == kNan : magnitude == kNan) return f32_of_bits(0x7fc00000u);
    if (magnitude < 8) {  // zero or subnormal
      constexpr float kStep = Fnuz ? 0x1p-10f : 0x1p-9f;
      return f32_of_bits(sign | bits_of_f32(static_cast<float>(magnitude) * kStep));
    }
    return f32_of_bits(sign | (magnitude + ((127u - kBias) << 3)) << 20);
  }

  /// Rounds as f16_of_f32 does.
  static u8 of_f32(float value) {
    const u32 bits = bits_of_f32(value), sign = bits >> 24 & 0x80u;
    u32 magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return kNan;
    if (magnitude > bits_of_f32(kMost)) magnitude = bits_of_f32(kMost);
    u32 code;
    if (magnitude < (128u - kBias) << 23) {                 // below the least normal number
      constexpr float kRounder = Fnuz ? 0x1p13f : 0x1p14f;  // its last bit is worth a subnormal step
      code = bits_of_f32(f32_of_bits(magnitude) + kRounder) - bits_of_f32(kRounder);
    } else {
      const u32 odd = magnitude >> 20 & 1u;
      code = (magnitude - ((127u - kBias) << 23) + 0x7ffffu + odd) >> 20;
    }
    return static_cast<u8>(Fnuz && code == 0 ? 0 : sign | code);
  }
};

}  // namespace forge::quant
