#pragma once
// Q4_0: 32 elements, 18 bytes: f16 d and 16 bytes of nibbles. Byte i holds element i (low nibble) and element 16+i
// (high nibble). value = d * (nibble - 8). Source: ggml's block_q4_0 as GGUF files carry it.

#include "kernels/quant/f16.h"

namespace forge::quant {

struct BlockQ4_0 {
  static constexpr u32 kElems = 32;
  u16 d;
  u8 qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

/// The nibble of element `element`, 0..15.
FORGE_QUANT_FN u32 raw_value(const BlockQ4_0& block, int element) {
  return element < 16 ? block.qs[element] & 15u : block.qs[element - 16] >> 4;
}
/// Kernels use raw values: value = block_scale * raw_value + block_offset.
FORGE_QUANT_FN float block_scale(const BlockQ4_0& block) {
  return f32_of_f16(block.d);
}
FORGE_QUANT_FN float block_offset(const BlockQ4_0& block) {
  return -8.0f * f32_of_f16(block.d);
}

FORGE_QUANT_FN void dequantize_block(const BlockQ4_0& block, float* out) {
  const float d = f32_of_f16(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int>(raw_value(block, i)) - 8);
}

/// Quantises 32 floats. The scale maps the element of largest magnitude to nibble 0, because nibbles reach from -8 to
/// +7 steps: the negative end has one step more.
FORGE_QUANT_FN void quantize_block(const float* x, BlockQ4_0& block) {
  float extreme = 0;
  for (int i = 0; i < 32; ++i)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(extreme)) extreme = x[i];
  const float d = extreme / -8.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
  block.d = f16_of_f32(d);
  for (int i = 0; i < 16; ++i) {
    const int low = static_cast<int>(x[i] * inverse + 8.5f), high = static_cast<int>(x[i + 16] * inverse + 8.5f);
    block.qs[i] = static_cast<u8>((low > 15 ? 15 : low) | (high > 15 ? 15 : high) << 4);
  }
}

}  // namespace forge::quant
