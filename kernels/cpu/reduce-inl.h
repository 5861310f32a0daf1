#pragma once
// Horizontal reduction of 16 vectors at once.

#include "kernels/cpu/simd-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// How lanes are combined: halves() combines two halves of a vector, all() reduces a vector to one number.
struct Sum {
  FORGE_INLINE static V halves(V a, V b) { return add(a, b); }
  FORGE_INLINE static float all(V v) { return reduce_add(v); }
};
struct LargestBits {
  FORGE_INLINE static V halves(V a, V b) { return max_bits(a, b); }
  FORGE_INLINE static float all(V v) { return reduce_max_bits(v); }
};
/// Returns a vector whose lane i is v[i] reduced to one number, with the same bits as reducing each vector alone. With
/// 16-lane registers two vectors are halved at once into one, and so on (16 -> 8 -> 4 -> 2 -> 1 registers): 15 steps of
/// two shuffles instead of 64.
template <class By>
FORGE_INLINE V reduce_each(const V* v) {
#if defined(__AVX512F__) && !defined(FORGE_CPU_GENERIC)
#define FORGE_COMBINE(a, b, low, high) \
  By::halves(B{__builtin_shufflevector((a).raw, (b).raw, low)}, B{__builtin_shufflevector((a).raw, (b).raw, high)})
#define FORGE_LANES(...) __VA_ARGS__
  B eighths[8], quarters[4], pairs[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // vectors are paired so that v[i] ends in lane i
    const int first = 2 * i, second = 2 * i + 1;
    eighths[i] = FORGE_COMBINE(v[first % 4 * 4 + first / 4], v[second % 4 * 4 + second / 4],
                               FORGE_LANES(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                               FORGE_LANES(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    quarters[i] = FORGE_COMBINE(eighths[2 * i], eighths[2 * i + 1],
                                FORGE_LANES(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
                                FORGE_LANES(4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31));
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    pairs[i] = FORGE_COMBINE(quarters[2 * i], quarters[2 * i + 1],
                             FORGE_LANES(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                             FORGE_LANES(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
  return FORGE_COMBINE(pairs[0], pairs[1], FORGE_LANES(0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30),
                       FORGE_LANES(1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31));
#undef FORGE_LANES
#undef FORGE_COMBINE
#else
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = By::all(v[i]);
  return M::load(lanes);
#endif
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
