#pragma once
// Types that all CPU kernels share: tiles of floats, and the layout of the KV cache.

#include <cstddef>
#include <cstdint>

#include "kernels/quant/dtype.h"

namespace forge::cpu {

/// A matrix of floats in memory that the kernel does not own: `rows` rows (tokens) of `width` floats; rows begin
/// `stride` floats apart.
struct Tile {
  float* data;
  std::size_t rows, width, stride;
};
/// A read-only Tile. Stride 0 repeats one row.
struct ConstTile {
  const float* data;
  std::size_t rows, width, stride;
  [[gnu::always_inline]] ConstTile(const float* d, std::size_t r, std::size_t w, std::size_t s)
      : data(d), rows(r), width(w), stride(s) {}
  [[gnu::always_inline]] ConstTile(const Tile& t) : data(t.data), rows(t.rows), width(t.width), stride(t.stride) {}
};

/// kPairs rotates elements (2i, 2i+1) of a head; kHalves rotates (i, i + rotary_dims/2), as GPT-NeoX does.
enum class RopeMode : std::uint8_t { kPairs, kHalves };

/// Tokens in one block of the paged KV cache.
inline constexpr std::size_t kKvBlockTokens = 32;
/// Columns that share a scale in a Q8_0 cache.
inline constexpr std::size_t kKvScaleColumns = 32;

/// One layer of the KV cache: F16, or Q8_0 if widths are multiples of 32. A block holds 32 tokens: K of each KV head,
/// then V of each KV head.
///   K of a head  [head_dim][32]: transposed, so that one load has a column of 16 tokens (lanes are tokens)
///   V of a head  [32][value_dim]
///   shared_row   K and V of a token are one row: [32][head_dim], V is the first value_dim elements of it (MLA)
///   Q8_0         int8 elements; behind the elements of each head's K or V their scales, f16 [width/32][32 tokens]
struct KvShape {
  DType type;
  std::size_t heads, head_dim, value_dim;
  bool shared_row = false;
};
/// True if a cache of this type can hold rows of `width` elements.
[[gnu::always_inline]] constexpr bool kv_type_fits(DType type, std::size_t width) {
  return type == DType::kF16 || (type == DType::kQ8_0 && width % kKvScaleColumns == 0);
}
/// True if the shape's type can hold its K and V.
[[gnu::always_inline]] constexpr bool kv_type_fits(const KvShape& shape) {
  return kv_type_fits(shape.type, shape.head_dim) && (shape.shared_row || kv_type_fits(shape.type, shape.value_dim));
}
/// Bytes of K, or of V, of one head in a block.
[[gnu::always_inline]] constexpr std::size_t kv_head_bytes(DType type, std::size_t width) {
  return kKvBlockTokens * (type == DType::kF16 ? 2 * width : width + 2 * (width / kKvScaleColumns));
}
/// Byte offset of the first head's V in a block.
[[gnu::always_inline]] constexpr std::size_t kv_values_offset(const KvShape& shape) {
  return shape.shared_row ? 0 : shape.heads * kv_head_bytes(shape.type, shape.head_dim);
}
/// Bytes of one block of one layer.
[[gnu::always_inline]] constexpr std::size_t kv_block_bytes(const KvShape& shape) {
  return shape.heads * kv_head_bytes(shape.type, shape.head_dim) +
         (shape.shared_row ? 0 : shape.heads * kv_head_bytes(shape.type, shape.value_dim));
}

}  // namespace forge::cpu
