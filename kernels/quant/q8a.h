#pragma once
// q8a_32, activations as CPUs multiply them: a row of k elements (k a multiple of 32) is [k] int8, [k/32] f32 scale,
// [k/32] f32 sum. scale = amax/127 of its block of 32, q = x * (1/scale) rounded to nearest even (0 where scale is at
// most kQ8aScaleLeast), sum = scale * (sum of q): what a weight's offset is multiplied with. A division a block, not
// one an element: they are what quantising takes its time for. A block whose x are not all finite has scale NaN and q
// 0, so that the trouble is seen and not hidden. Rows are a multiple of 64 bytes long.

#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_1.h"
#include "kernels/quant/q8_0.h"

namespace forge::quant {

[[gnu::always_inline]] constexpr unsigned long q8a_row_bytes(unsigned long k) {
  return (40 * (k / 32) + 63) / 64 * 64;
}
[[gnu::always_inline]] constexpr unsigned long q8a_scales_offset(unsigned long k) {
  return k;
}
[[gnu::always_inline]] constexpr unsigned long q8a_sums_offset(unsigned long k) {
  return k + k / 32 * 4;
}

/// Scales up to here have no reciprocal that f32 holds in full.
inline constexpr float kQ8aScaleLeast = 1e-30f;

/// One block of 32: q[32], scale, sum. The scalar reference of every quantiser to q8a_32.
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
