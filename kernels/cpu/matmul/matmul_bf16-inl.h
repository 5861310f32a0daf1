#pragma once
// BF16 dots with AVX-512: vdpbf16ps multiplies two pairs of BF16 per lane and adds both products to an f32, the odd
// column's first. Each addition rounds to nearest even and subnormals count as 0. Activations are therefore rounded to
// BF16 too, as in the training of such models. A step covers two columns of 16 rows. It has twice the rate of f32 fma
// (Zen 5: 230 against 115 Gmul/s per core). Source: Intel SDM, volume 2, VDPBF16PS.

#include "kernels/cpu/bf16_pairs-inl.h"
#include "kernels/cpu/matmul/matmul_float-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// How BF16 weights meet x in matmul_float: see FloatColumns for the meaning of the members. Layout x16 has 16 rows of
/// one column and then 16 of the next; bf16_pairs interleaves two columns to pairs.
struct DotBf16 {
  static constexpr std::size_t kBytes = 4, kColumns = 2;
  static constexpr bool kInPlace = false;

  FORGE_INLINE static B pairs(__m512i columns) { return B{_mm512_castsi512_ps(bf16_pairs(columns))}; }
  FORGE_INLINE static B load(const std::byte* p) { return pairs(_mm512_loadu_si512(p)); }
  /// The last column if k is odd; its missing neighbour counts as 0.
  FORGE_INLINE static B load_rest(const std::byte* p) {
    return pairs(_mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
  }
  FORGE_INLINE static B multiply_add(B weights, float pair, B sum) {
    const __m512i x = _mm512_castps_si512(_mm512_set1_ps(pair));
    return B{_mm512_dpbf16_ps(sum.raw, (__m512bh)_mm512_castps_si512(weights.raw), (__m512bh)x)};
  }
  FORGE_INLINE static void fill(const float* x, std::size_t count, float* panel) {
    const __mmask16 some = static_cast<__mmask16>((1U << count) - 1);
    const __m256bh pairs = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, x));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(panel), (__m256i)pairs);
  }
};

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
