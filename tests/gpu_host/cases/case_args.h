#pragma once
// Arguments that the cases and the tests that launch them share.

namespace forge::gpu {

struct IntArgs {
  const int* in;
  int* out;
  int* counter;
};

/// c[M][N] = sum over k of a[M][k] * bt[N][k], both taken to f16.
struct TileArgs {
  const float* a;
  const float* bt;
  float* c;
};
inline constexpr int kTileSteps = 2;  ///< k is so many tiles deep

}  // namespace forge::gpu
