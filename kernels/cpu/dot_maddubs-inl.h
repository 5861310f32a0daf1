#pragma once
// Integer dots without VNNI, of 8 rows (AVX2) or 16 rows (AVX-512 BW): vpmaddubsw adds two products of an unsigned and
// a signed byte in 16 bits, and saturates. With nibbles it cannot: |2 * 15 * 127| = 3810, and even the 8 of a block sum
// to 30480 < 32768. Bytes of Q8_0 are therefore taken as two nibbles, u = low + 16 * high, with a 16-bit sum each; the
// closing vpmaddwd multiplies by 1 and by 16. Everything stays exact, so all classes agree bit for bit.

#include <immintrin.h>

#include "kernels/cpu/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

#if defined(__AVX512BW__)
struct Ints {
  using I = __m512i;
  using F = __m512;
  static constexpr int kRows = 16;
  FORGE_INLINE static I load(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
  FORGE_INLINE static I all_words(std::int32_t w) { return _mm512_set1_epi32(w); }
  FORGE_INLINE static I all_shorts(short w) { return _mm512_set1_epi16(w); }
  FORGE_INLINE static I both(I a, I b) { return _mm512_and_si512(a, b); }
  FORGE_INLINE static I high(I a) { return _mm512_srli_epi16(a, 4); }
  FORGE_INLINE static I pairs(I u, I s) { return _mm512_maddubs_epi16(u, s); }
  FORGE_INLINE static I add_shorts(I a, I b) { return _mm512_add_epi16(a, b); }
  FORGE_INLINE static I add_words(I a, I b) { return _mm512_add_epi32(a, b); }
  FORGE_INLINE static I widen(I a, I factor) { return _mm512_madd_epi16(a, factor); }
  FORGE_INLINE static I none() { return _mm512_setzero_si512(); }
  FORGE_INLINE static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  FORGE_INLINE static F all(float x) { return _mm512_set1_ps(x); }
  FORGE_INLINE static F scales(const std::uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  FORGE_INLINE static F load_floats(const float* p) { return _mm512_loadu_ps(p); }
  FORGE_INLINE static void store_floats(float* p, F v) { _mm512_storeu_ps(p, v); }
  FORGE_INLINE static F times(F a, F b) { return _mm512_mul_ps(a, b); }
  FORGE_INLINE static F fused(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
};
#else
struct Ints {
  using I = __m256i;
  using F = __m256;
  static constexpr int kRows = 8;
  FORGE_INLINE static I load(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  FORGE_INLINE static I all_words(std::int32_t w) { return _mm256_set1_epi32(w); }
  FORGE_INLINE static I all_shorts(short w) { return _mm256_set1_epi16(w); }
  FORGE_INLINE static I both(I a, I b) { return _mm256_and_si256(a, b); }
  FORGE_INLINE static I high(I a) { return _mm256_srli_epi16(a, 4); }
  FORGE_INLINE static I pairs(I u, I s) { return _mm256_maddubs_epi16(u, s); }
  FORGE_INLINE static I add_shorts(I a, I b) { return _mm256_add_epi16(a, b); }
  FORGE_INLINE static I add_words(I a, I b) { return _mm256_add_epi32(a, b); }
  FORGE_INLINE static I widen(I a, I factor) { return _mm256_madd_epi16(a, factor); }
  FORGE_INLINE static I none() { return _mm256_setzero_si256(); }
  FORGE_INLINE static F to_float(I a) { return _mm256_cvtepi32_ps(a); }
  FORGE_INLINE static F all(float x) { return _mm256_set1_ps(x); }
  FORGE_INLINE static F scales(const std::uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  FORGE_INLINE static F load_floats(const float* p) { return _mm256_loadu_ps(p); }
  FORGE_INLINE static void store_floats(float* p, F v) { _mm256_storeu_ps(p, v); }
  FORGE_INLINE static F times(F a, F b) { return _mm256_mul_ps(a, b); }
  FORGE_INLINE static F fused(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
};
#endif

/// A nibble format keeps two sums a token, Q8_0 three.
template <class Format>
constexpr int tokens_max() {
  constexpr int kSums = Format::kFlat ? 3 : 2;
  return (Ints::kRows == 16 ? 24 : 8) / kSums;
}

/// The integer dots of one block: kRows rows by T tokens, from 64-byte lines of which this half starts at `quants`.
template <class Format, int T>
FORGE_INLINE void block_dots(const std::uint8_t* quants, const std::uint8_t* panel, Ints::I* dots) {
  using I = Ints::I;
  const I nibble = Ints::all_shorts(0x0f0f);
  I low[T], high[T];
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) low[t] = high[t] = Ints::none();
#pragma GCC unroll 8
  for (int j = 0; j < static_cast<int>(Format::kQuantBytes / 64); ++j) {
    const I raw = Ints::load(quants + 64 * j);
    const I w0 = Ints::both(raw, nibble), w1 = Ints::both(Ints::high(raw), nibble);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const I x0 = Ints::all_words(load_i32(panel + 32 * t + 4 * j));
      low[t] = Ints::add_shorts(low[t], Ints::pairs(w0, x0));
      if constexpr (Format::kFlat)
        high[t] = Ints::add_shorts(high[t], Ints::pairs(w1, x0));
      else
        low[t] = Ints::add_shorts(low[t], Ints::pairs(w1, Ints::all_words(load_i32(panel + 32 * t + 16 + 4 * j))));
    }
  }
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) {
    dots[t] = Ints::widen(low[t], Ints::all_shorts(1));
    if constexpr (Format::kFlat) dots[t] = Ints::add_words(dots[t], Ints::widen(high[t], Ints::all_shorts(16)));
    if constexpr (!Format::kMinimum)
      dots[t] = Ints::add_words(dots[t], Ints::all_words(load_i32(panel + 36 * T + 4 * t)));
  }
}

template <class Format, int T>
FORGE_INLINE void micro_rows(const MicroArgs& args, int first_row) {
  using F = Ints::F;
  const std::uint8_t* panel = args.panel;
  float* out = args.out + first_row;
  F sums[T];
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) sums[t] = args.first ? Ints::all(0.0f) : Ints::load_floats(out + t * args.out_stride);
  const auto fetch = [&](const std::uint8_t* block) FORGE_INLINE_BODY {
    if (args.fetch && first_row == 0) fetch_ahead<Format>(block);
  };
  const auto block = [&](const std::uint8_t* quants, const std::uint8_t* group_scales) FORGE_INLINE_BODY {
    const std::uint8_t* scales = group_scales + 2 * first_row;
    Ints::I dots[T];
    block_dots<Format, T>(quants + 4 * first_row, panel, dots);
    const F d = Ints::scales(scales);
    const F minimum = Format::kMinimum ? Ints::scales(scales + 32) : Ints::all(0.0f);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const F step = Ints::times(d, Ints::all(load_f32(panel + 32 * T + 4 * t)));
      sums[t] = Ints::fused(step, Ints::to_float(dots[t]), sums[t]);
      if constexpr (Format::kMinimum)
        sums[t] = Ints::fused(minimum, Ints::all(load_f32(panel + 36 * T + 4 * t)), sums[t]);
    }
    panel += 40 * T;
  };
  for_each_block<Format>(args, fetch, block);
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) Ints::store_floats(out + t * args.out_stride, sums[t]);
}

template <class Format, int T>
void micro(const MicroArgs& args) {
  for (int row = 0; row < 16; row += Ints::kRows) micro_rows<Format, T>(args, row);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
