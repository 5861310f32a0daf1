#pragma once
// Integer dots of 16 rows with AVX-512 VNNI: vpdpbusd multiplies 4 unsigned bytes by 4 signed bytes per lane and adds
// the products exactly to 32 bits.

#include <immintrin.h>

#include "kernels/cpu/matmul/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Tokens of a register tile: 12 integer and 12 float sums, two operands of weights, d and the minimum take 28 of 32
/// registers.
template <class Format>
constexpr int tokens_max() {
  return 12;
}

/// One token multiplies four groups side by side, because a server core reads several streams faster than one. Measured
/// on a Xeon with AMX (2 MiB pages, medians of 647 alternating readings of 32 MiB, GB/s): one stream 13.08, two 13.32,
/// four 13.36, eight 12.83; a plain sum reads 13.76.
template <class Format>
constexpr int groups_max() {
  return 4;
}

/// 16 f16 scales as floats.
FORGE_INLINE __m512 load_scales(const std::uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

/// One group by T tokens over a strip. The panel per block: [T][32] quants, [T] scales, [T] sums (or start values).
template <class Format, int T>
void micro(const MicroArgs& args) {
  const std::uint8_t* panel = args.panel;
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512 sums[T];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
    sums[t] = args.first ? _mm512_setzero_ps() : _mm512_loadu_ps(args.out + t * args.out_stride);
  const auto fetch = [&](const std::uint8_t* block) FORGE_INLINE_BODY {
    if (args.fetch) fetch_ahead<Format>(block);
  };
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* scales) FORGE_INLINE_BODY {
    __m512i dots[T];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t)
      dots[t] = Format::kMinimum ? _mm512_setzero_si512() : _mm512_set1_epi32(load_i32(panel + 36 * T + 4 * t));
#pragma GCC unroll 8
    for (int j = 0; j < 4; ++j) {
      const auto* line = reinterpret_cast<const __m512i*>(quants + (Format::kFlat ? 128 : 64) * j);
      const __m512i raw = _mm512_loadu_si512(line);
      const __m512i w0 = Format::kFlat ? raw : _mm512_and_si512(raw, nibble);
      const __m512i w1 =
          Format::kFlat ? _mm512_loadu_si512(line + 1) : _mm512_and_si512(_mm512_srli_epi16(raw, 4), nibble);
      constexpr int kStep = Format::kFlat ? 8 : 4, kSecond = Format::kFlat ? 4 : 16;
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t)
        dots[t] = _mm512_dpbusd_epi32(dots[t], w0, _mm512_set1_epi32(load_i32(panel + 32 * t + kStep * j)));
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t)
        dots[t] = _mm512_dpbusd_epi32(dots[t], w1, _mm512_set1_epi32(load_i32(panel + 32 * t + kSecond + kStep * j)));
    }
    const __m512 d = load_scales(scales);
    const __m512 minimum = Format::kMinimum ? load_scales(scales + 32) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const __m512 step = _mm512_mul_ps(d, _mm512_set1_ps(load_f32(panel + 32 * T + 4 * t)));
      sums[t] = _mm512_fmadd_ps(step, _mm512_cvtepi32_ps(dots[t]), sums[t]);
      if constexpr (Format::kMinimum)
        sums[t] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(load_f32(panel + 36 * T + 4 * t)), sums[t]);
    }
    panel += 40 * T;
  };
  for_each_block<Format>(args, fetch, block);
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) _mm512_storeu_ps(args.out + t * args.out_stride, sums[t]);
}

/// One token by kGroups groups over a strip.
template <class Format, int kGroups>
void micro_groups(const MicroArgs& args) {
  const std::uint8_t* panel = args.panel;
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512 sums[kGroups];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) sums[g] = args.first ? _mm512_setzero_ps() : _mm512_loadu_ps(args.out + 16 * g);
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* scales) FORGE_INLINE_BODY {
    constexpr int kWords = Format::kFlat ? 8 : 4;
    const __m512 x_scale = _mm512_set1_ps(load_f32(panel + 32)), x_sum = _mm512_set1_ps(load_f32(panel + 36));
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const std::uint8_t *lines = quants + g * args.group_bytes, *own = scales + g * args.group_bytes;
      __m512i dot = Format::kMinimum ? _mm512_setzero_si512() : _mm512_set1_epi32(load_i32(panel + 36));
#pragma GCC unroll 8
      for (int j = 0; j < kWords; ++j) {
        const __m512i raw = _mm512_loadu_si512(lines + 64 * j);
        const __m512i word = Format::kFlat ? raw : _mm512_and_si512(raw, nibble);
        dot = _mm512_dpbusd_epi32(dot, word, _mm512_set1_epi32(load_i32(panel + 4 * j)));
        if constexpr (!Format::kFlat)
          dot = _mm512_dpbusd_epi32(dot, _mm512_and_si512(_mm512_srli_epi16(raw, 4), nibble),
                                    _mm512_set1_epi32(load_i32(panel + 16 + 4 * j)));
      }
      sums[g] = _mm512_fmadd_ps(_mm512_mul_ps(load_scales(own), x_scale), _mm512_cvtepi32_ps(dot), sums[g]);
      if constexpr (Format::kMinimum) sums[g] = _mm512_fmadd_ps(load_scales(own + 32), x_sum, sums[g]);
    }
    panel += 40;
  };
  const StreamsAhead<Format, kGroups> ahead{args};
  for_each_block<Format>(args, [&](const std::uint8_t* p) FORGE_INLINE_BODY { ahead.fetch(p); }, block);
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) _mm512_storeu_ps(args.out + 16 * g, sums[g]);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
