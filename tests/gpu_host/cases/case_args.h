#pragma once
// Kernel arguments shared by the case kernels and the tests that launch them.

namespace forge::gpu {

struct IntArgs {
  const int* in;
  int* out;
  int* counter;
};

/// c[M][N] = sum over k of a[M][k] * bt[N][k], both rounded to f16.
struct TileArgs {
  const float* a;
  const float* bt;
  float* c;
};
inline constexpr int kTileSteps = 2;  ///< k is this many tiles long

}  // namespace forge::gpu
