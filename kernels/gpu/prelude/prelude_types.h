#pragma once
// Types that the AMD, NVIDIA and host versions of the prelude share.

#include "kernels/quant/portable.h"

namespace forge::gpu {

using quant::i8;
using quant::u16;
using quant::u32;
using quant::u8;
using i32 = int;
using u64 = unsigned long long;

inline constexpr int kWave = FORGE_WAVE;

/// Four floats: 16 bytes, read and written as one unit in shared memory.
struct alignas(16) F32x4 {
  float at[4];
};

/// 16 bytes: the widest load of a lane.
struct alignas(16) U32x4 {
  u32 at[4];
};
struct alignas(8) U32x2 {
  u32 at[2];
};

}  // namespace forge::gpu
