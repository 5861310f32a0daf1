#pragma once
// Host: whole rows of any type that forge computes with, in GGUF's native layout.

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/quant/blocks.h"
#include "kernels/quant/dtype.h"
#include "kernels/quant/q8a.h"

namespace forge::quant {

/// How the bytes of a weight stand in memory. Numbers are part of the plan format.
enum class Layout : std::uint8_t { kNative = 0, kX16 = 1, kPlanes = 2 };

/// The types that a weight can have: what kernels of the CPU compute with.
constexpr bool has_kernels(DType type) {
  return is_float(type) || with_block(type, [](auto) {});
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
  for (std::size_t b = 0; b < k / Block::kElems; ++b) {
    Block block;
    std::memcpy(&block, row + b * sizeof(Block), sizeof(Block));
    dequantize_block(block, out + Block::kElems * b);
  }
}

template <class Block>
void quantize_blocks(const float* x, std::size_t k, std::byte* row) {
  for (std::size_t b = 0; b < k / Block::kElems; ++b) {
    Block block;
    quantize_block(x + Block::kElems * b, block);
    std::memcpy(row + b * sizeof(Block), &block, sizeof(Block));
  }
}

/// One native row of k elements to f32. False for a type that is no weight's.
inline bool dequantize_native(DType type, const std::byte* row, std::size_t k, float* out) {
  if (is_float(type)) {
    for (std::size_t i = 0; i < k; ++i) out[i] = float_element(type, row, i);
    return true;
  }
  return with_block(type, [&]<class Block>(std::type_identity<Block>) { dequantize_blocks<Block>(row, k, out); });
}

/// k floats to one native row (row_bytes(type, k) bytes). False for a type that forge only reads.
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
    default:
      bool writes = false;
      with_block(type, [&]<class Block>(std::type_identity<Block>) {
        if constexpr (requires(Block& block) { quantize_block(x, block); }) {
          quantize_blocks<Block>(x, k, row);
          writes = true;
        }
      });
      return writes;
  }
}

}  // namespace forge::quant
