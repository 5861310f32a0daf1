#pragma once
// BF16 pairs, the operand of AVX-512 BF16 dots and of AMX BF16 tiles: a 32-bit lane holds two neighbouring columns of
// one row.

#include <immintrin.h>

#include "kernels/cpu/simd-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Interleaves 16 rows of one column (lower half) with 16 rows of the next column (upper half): lane r becomes the pair
/// of row r.
FORGE_INLINE __m512i bf16_pairs(__m512i columns) {
  const __m512i rows = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                        5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(rows, columns);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
