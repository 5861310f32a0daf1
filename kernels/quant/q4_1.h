#pragma once
// Q4_1: 32 elements, 20 bytes: f16 d, f16 m and 16 bytes of nibbles. Byte i holds element i (low nibble) and element
// 16+i (high nibble). value = d * nibble + m. Source: ggml's block_q4_1 as GGUF files carry it.

#include "kernels/quant/f16.h"

namespace forge::quant {

struct BlockQ4_1 {
  static constexpr u32 kElems = 32;
  u16 d, m;
  u8 qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

/// The nibble of element `element`, 0..15.
FORGE_QUANT_FN u32 raw_value(const BlockQ4_1& block, int element) {
  return element < 16 ? block.qs[element] & 15u : block.qs[element - 16] >> 4;
}
/// Kernels use raw values: value = block_scale * raw_value + block_offset.
FORGE_QUANT_FN float block_scale(const BlockQ4_1& block) {
  return f32_of_f16(block.d);
}
FORGE_QUANT_FN float block_offset(const BlockQ4_1& block) {
  return f32_of_f16(block.m);
}

FORGE_QUANT_FN void dequantize_block(const BlockQ4_1& block, float* out) {
  const float d = f32_of_f16(block.d), m = f32_of_f16(block.m);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(raw_value(block, i)) + m;
}

/// Quantises 32 floats: nibbles 0 and 15 stand for the smallest and the largest of them.
FORGE_QUANT_FN void quantize_block(const float* x, BlockQ4_1& block) {
  float lowest = x[0], highest = x[0];
  for (int i = 1; i < 32; ++i) {
    lowest = x[i] < lowest ? x[i] : lowest;
    highest = x[i] > highest ? x[i] : highest;
  }
  const float d = (highest - lowest) / 15.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
  block.d = f16_of_f32(d);
  block.m = f16_of_f32(lowest);
  for (int i = 0; i < 16; ++i) {
    const int low = static_cast<int>((x[i] - lowest) * inverse + 0.5f);
    const int high = static_cast<int>((x[i + 16] - lowest) * inverse + 0.5f);
    block.qs[i] = static_cast<u8>((low > 15 ? 15 : low) | (high > 15 ? 15 : high) << 4);
  }
}

}  // namespace forge::quant
