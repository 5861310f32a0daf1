#pragma once
// Q8_0: 32 elements, 34 bytes: f16 d and 32 int8 q. value = d * q. Source: ggml's block_q8_0 as GGUF files carry it.

#include "kernels/quant/f16.h"

namespace forge::quant {

struct BlockQ8_0 {
  static constexpr u32 kElems = 32;
  u16 d;
  i8 qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

/// q + 128: unsigned, as layout x16 stores it, because dot instructions take one unsigned and one signed operand.
FORGE_QUANT_FN u32 raw_value(const BlockQ8_0& block, int element) {
  return static_cast<u32>(block.qs[element] + 128);
}
/// Kernels use raw values: value = block_scale * raw_value + block_offset.
FORGE_QUANT_FN float block_scale(const BlockQ8_0& block) {
  return f32_of_f16(block.d);
}
FORGE_QUANT_FN float block_offset(const BlockQ8_0& block) {
  return -128.0f * f32_of_f16(block.d);
}

FORGE_QUANT_FN void dequantize_block(const BlockQ8_0& block, float* out) {
  const float d = f32_of_f16(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

/// Quantises 32 floats: d = amax / 127, q rounded to nearest, halves away from zero.
FORGE_QUANT_FN void quantize_block(const float* x, BlockQ8_0& block) {
  float amax = 0;
  for (int i = 0; i < 32; ++i) amax = __builtin_fabsf(x[i]) > amax ? __builtin_fabsf(x[i]) : amax;
  const float d = amax / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
  block.d = f16_of_f32(d);
  for (int i = 0; i < 32; ++i) {
    const float scaled = x[i] * inverse;
    block.qs[i] = static_cast<i8>(scaled < 0 ? scaled - 0.5f : scaled + 0.5f);
  }
}

}  // namespace forge::quant
