#pragma once
// Matmul of F32, F16 and BF16 weights by f32 activations. Lanes are rows; four partial sums over k mod 4, so that a
// sum is not one long chain of fma.

#include "kernels/cpu/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

struct LoadF32 {
  static constexpr std::size_t kBytes = 4;
  FORGE_INLINE static B load(const std::byte* p) { return base_load(reinterpret_cast<const float*>(p)); }
};
struct LoadF16 {
  static constexpr std::size_t kBytes = 2;
  FORGE_INLINE static B load(const std::byte* p) { return base_load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
};
struct LoadBf16 {
  static constexpr std::size_t kBytes = 2;
  FORGE_INLINE static B load(const std::byte* p) { return base_load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
};

/// kLanes rows by T tokens over all k; `weights` points at the first of these rows' elements of k = 0. A group's first
/// rows fetch for all of it.
template <class Weight, int T>
FORGE_INLINE void float_rows(const std::byte* weights, bool first_rows, std::size_t k, const float* const* x,
                             float* out, std::size_t out_stride) {
  constexpr std::size_t kStep = 16 * Weight::kBytes;
  B sums[4][T];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[i][t] = base_set1(0.0f);
  std::size_t at = 0;
  for (; at + 4 <= k; at += 4, weights += 4 * kStep) {
    if (T <= kTokensFetchingAhead && first_rows)
#pragma GCC unroll 4
      for (std::size_t line = 0; line < 4 * kStep; line += 64) __builtin_prefetch(weights + kFetchAhead + line, 0, 2);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const B w = Weight::load(weights + i * kStep);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sums[i][t] = fma(w, base_set1(x[t][at + i]), sums[i][t]);
    }
  }
#pragma GCC unroll 3
  for (std::size_t i = 0; i < 3; ++i) {
    if (at + i >= k) break;
    const B w = Weight::load(weights + i * kStep);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[i][t] = fma(w, base_set1(x[t][at + i]), sums[i][t]);
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    base_store(add(add(sums[0][t], sums[1][t]), add(sums[2][t], sums[3][t])), out + t * out_stride);
}

template <class Weight, int T>
void float_group(const std::byte* group, std::size_t k, const float* const* rows, float* out, std::size_t out_stride) {
  const float* x[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) x[t] = rows[t];
  for (std::size_t row = 0; row < 16; row += kLanes)
    float_rows<Weight, T>(group + row * Weight::kBytes, row == 0, k, x, out + row, out_stride);
}

using FloatGroupFn = void (*)(const std::byte*, std::size_t, const float* const*, float*, std::size_t);
template <class Weight, int T>
FORGE_INLINE FloatGroupFn float_group_for(std::size_t count) {
  if constexpr (T > 1)
    if (count < T) return float_group_for<Weight, T - 1>(count);
  return float_group<Weight, T>;
}

template <class Weight>
void matmul_float(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                  std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                  std::size_t out_stride) {
  constexpr std::size_t kTokens = kLanes == 16 ? 6 : 3;  // 4 sums a token: 24 of 32, or 12 of 16 registers
  if (tokens == 0 || groups == 0) return;
  const PanelSource source{x, x_row_bytes, k, row_map};
  const std::size_t group_bytes = 16 * k * Weight::kBytes;
  const std::size_t step = groups_together(tokens <= kTokens, groups, group_bytes);
  const std::size_t tiles = divide_up(tokens, kTokens);
  for (std::size_t group0 = 0; group0 < groups; group0 += step) {
    const std::size_t group1 = group0 + step < groups ? group0 + step : groups;
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      const std::size_t t0 = tokens * tile / tiles, count = tokens * (tile + 1) / tiles - t0;
      const float* rows[kTokens];
      for (std::size_t t = 0; t < count; ++t) rows[t] = reinterpret_cast<const float*>(source.row(t0 + t));
      const FloatGroupFn run = float_group_for<Weight, static_cast<int>(kTokens)>(count);
      for (std::size_t g = group0; g < group1; ++g)
        run(weights + g * group_bytes, k, rows, out + t0 * out_stride + 16 * g, out_stride);
    }
  }
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
