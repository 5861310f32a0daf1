#pragma once
// Host only: converts whole rows of any type that forge computes with, in GGUF's native layout. The interpreter, the
// embedding lookup and tests use it.

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/quant/blocks.h"
#include "kernels/quant/dtype.h"
#include "kernels/quant/q8a.h"

namespace forge::quant {

/// How the bytes of a weight lie in memory: as in the GGUF file, packed for the CPU (x16.h), or packed for GPUs
/// (planes.h). The numbers are part of the plan format.
enum class Layout : std::uint8_t { kNative = 0, kX16 = 1, kPlanes = 2 };

/// True for the types that a weight may have, which are those with CPU matmuls.
constexpr bool has_kernels(DType type) {
  return is_float(type) || with_block(type, [](auto) {});
}

/// Element `index` of a row of F32, F16 or BF16 as f32. The row needs no alignment.
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

/// k / kElems native blocks to k floats. Blocks are copied to a local first: a row of a file may lie at any address.
template <class Block>
void dequantize_blocks(const std::byte* row, std::size_t k, float* out) {
  for (std::size_t b = 0; b < k / Block::kElems; ++b) {
    Block block;
    std::memcpy(&block, row + b * sizeof(Block), sizeof(Block));
    dequantize_block(block, out + Block::kElems * b);
  }
}

/// k floats to k / kElems native blocks, for the types that have quantize_block.
template <class Block>
void quantize_blocks(const float* x, std::size_t k, std::byte* row) {
  for (std::size_t b = 0; b < k / Block::kElems; ++b) {
    Block block;
    quantize_block(x + Block::kElems * b, block);
    std::memcpy(row + b * sizeof(Block), &block, sizeof(Block));
  }
}

/// One native row of k elements to f32. Returns false for a type that no weight has.
inline bool dequantize_native(DType type, const std::byte* row, std::size_t k, float* out) {
  if (is_float(type)) {
    for (std::size_t i = 0; i < k; ++i) out[i] = float_element(type, row, i);
    return true;
  }
  return with_block(type, [&]<class Block>(std::type_identity<Block>) { dequantize_blocks<Block>(row, k, out); });
}

/// k floats to one native row of row_bytes(type, k) bytes. Returns false for a type that forge can only read. Used by
/// tests and by tools that write synthetic models.
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
