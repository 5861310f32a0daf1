#pragma once
// BF16 of two columns, as the dots of AVX-512 and of tiles take them.

#include <immintrin.h>

#include "kernels/cpu/simd-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// 16 rows of one column and 16 of the next become pairs, row after row.
FORGE_INLINE __m512i bf16_pairs(__m512i columns) {
  const __m512i rows = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                        5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(rows, columns);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
