#pragma once
// Host: whole rows of any type that forge computes with, in GGUF's native layout.

#include <cstddef>
#include <cstring>

#include "kernels/quant/dtype.h"
#include "kernels/quant/q8a.h"

namespace forge::quant {

/// How the bytes of a weight stand in memory. Numbers are part of the plan format.
enum class Layout : std::uint8_t { kNative = 0, kX16 = 1, kPlanes = 2 };

/// The types that forge has kernels for.
constexpr bool has_kernels(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 || type == DType::kQ8_0 ||
         type == DType::kQ4_0 || type == DType::kQ4_1;
}

/// Element `index` of a row of F32, F16 or BF16.
inline float float_element(DType type, const std::byte* row, std::size_t index) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, row + 4 * index, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, row + 2 * index, 2);
  return type == DType::kF16 ? f32_of_f16(bits) : f32_of_bf16(bits);
}

template <class Block>
void dequantize_blocks(const std::byte* row, std::size_t k, float* out) {
  for (std::size_t b = 0; b < k / 32; ++b) {
    Block block;
    std::memcpy(&block, row + b * sizeof(Block), sizeof(Block));
    dequantize_block(block, out + 32 * b);
  }
}

template <class Block>
void quantize_blocks(const float* x, std::size_t k, std::byte* row) {
  for (std::size_t b = 0; b < k / 32; ++b) {
    Block block;
    quantize_block(x + 32 * b, block);
    std::memcpy(row + b * sizeof(Block), &block, sizeof(Block));
  }
}

/// One native row of k elements to f32. False for a type without kernels.
inline bool dequantize_native(DType type, const std::byte* row, std::size_t k, float* out) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      for (std::size_t i = 0; i < k; ++i) out[i] = float_element(type, row, i);
      return true;
    case DType::kQ8_0:
      dequantize_blocks<BlockQ8_0>(row, k, out);
      return true;
    case DType::kQ4_0:
      dequantize_blocks<BlockQ4_0>(row, k, out);
      return true;
    case DType::kQ4_1:
      dequantize_blocks<BlockQ4_1>(row, k, out);
      return true;
    default:
      return false;
  }
}

/// k floats to one native row (row_bytes(type, k) bytes). False for a type without kernels.
inline bool quantize_row(DType type, const float* x, std::size_t k, std::byte* row) {
  switch (type) {
    case DType::kF32:
      std::memcpy(row, x, 4 * k);
      return true;
    case DType::kF16:
    case DType::kBF16:
      for (std::size_t i = 0; i < k; ++i) {
        const std::uint16_t bits = type == DType::kF16 ? f16_of_f32(x[i]) : bf16_of_f32(x[i]);
        std::memcpy(row + 2 * i, &bits, 2);
      }
      return true;
    case DType::kQ8_0:
      quantize_blocks<BlockQ8_0>(x, k, row);
      return true;
    case DType::kQ4_0:
      quantize_blocks<BlockQ4_0>(x, k, row);
      return true;
    case DType::kQ4_1:
      quantize_blocks<BlockQ4_1>(x, k, row);
      return true;
    default:
      return false;
  }
}

}  // namespace forge::quant
