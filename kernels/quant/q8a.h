#pragma once
// q8a_32: activations quantised to int8, as CPU matmuls multiply them. A row of k elements (k a multiple of 32) is
//   | k int8 q | k/32 f32 scale | k/32 f32 sum |   padded to a multiple of 64 bytes
// For each block of 32 elements:
//   scale = amax / 127
//   q     = x * (1 / scale), rounded to nearest even; 0 if scale is at most kQ8aScaleLeast
//   sum   = scale * (sum of q)
// A matmul multiplies a weight's offset by sum: sum of (s_w q_w + o_w) (scale q) = s_w scale (q_w . q) + o_w sum.
//
// There is one division per block instead of one per element, because divisions dominate the time of quantising. A
// block with an infinite or NaN element gets scale NaN and q 0, so that the fault shows up in the results.

#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_1.h"
#include "kernels/quant/q8_0.h"

namespace forge::quant {

/// Bytes of a row of k elements.
[[gnu::always_inline]] constexpr unsigned long q8a_row_bytes(unsigned long k) {
  return (40 * (k / 32) + 63) / 64 * 64;
}
/// Byte offset of the scales in a row.
[[gnu::always_inline]] constexpr unsigned long q8a_scales_offset(unsigned long k) {
  return k;
}
/// Byte offset of the sums in a row.
[[gnu::always_inline]] constexpr unsigned long q8a_sums_offset(unsigned long k) {
  return k + k / 32 * 4;
}

/// For scales up to this one, 1 / scale overflows f32 or loses precision, so their block is quantised to zeros.
inline constexpr float kQ8aScaleLeast = 1e-30f;

/// Quantises one block of 32 elements. This is the scalar reference of all quantisers to q8a_32.
FORGE_QUANT_FN void quantize_q8a_block(const float* x, i8* q, float* scale, float* sum) {
  float amax = 0;
  bool finite = true;
  for (int i = 0; i < 32; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    finite = finite && magnitude <= 3.402823466e38f;
    amax = magnitude > amax ? magnitude : amax;
  }
  const float step = amax / 127.0f, inverse = finite && step > kQ8aScaleLeast ? 1.0f / step : 0.0f;
  int total = 0;
  for (int i = 0; i < 32; ++i) {
    q[i] = inverse > 0 ? static_cast<i8>(__builtin_rintf(x[i] * inverse)) : i8{0};
    total += q[i];
  }
  *scale = finite ? step : __builtin_nanf("");
  *sum = *scale * static_cast<float>(total);
}

}  // namespace forge::quant
