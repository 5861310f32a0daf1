#pragma once
// Floats in the order of unsigned integers, for radix searches.

#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

/// Maps a float that is no NaN to an unsigned integer that rises with it: the sign bit of positive floats is set,
/// negative floats have all bits inverted.
FORGE_DEVICE u32 rising_bits(float value) {
  const u32 bits = __builtin_bit_cast(u32, value);
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

}  // namespace forge::gpu
