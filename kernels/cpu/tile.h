#pragma once
// What all kernels speak about: a tile of floats, and the place of a token in the KV cache.

#include <cstddef>
#include <cstdint>

#include "kernels/quant/dtype.h"

namespace forge::cpu {

/// `rows` rows (tokens) of `width` floats, rows `stride` floats apart.
struct Tile {
  float* data;
  std::size_t rows, width, stride;
};
struct ConstTile {
  const float* data;
  std::size_t rows, width, stride;
  [[gnu::always_inline]] ConstTile(const float* d, std::size_t r, std::size_t w, std::size_t s)
      : data(d), rows(r), width(w), stride(s) {}
  [[gnu::always_inline]] ConstTile(const Tile& t) : data(t.data), rows(t.rows), width(t.width), stride(t.stride) {}
};

/// kPairs rotates (2i, 2i+1); kHalves rotates (i, i + rotary_dims/2), as NeoX does.
enum class RopeMode : std::uint8_t { kPairs, kHalves };

/// Tokens of one block of the paged KV cache.
inline constexpr std::size_t kKvBlockTokens = 32;
/// Columns that share a scale in a Q8_0 cache.
inline constexpr std::size_t kKvScaleColumns = 32;

/// One layer of the cache: F16, or Q8_0 with widths that are multiples of 32. A block has K of each head, then V of
/// each.
///   K of a head: [head_dim][32] elements (transposed: the lanes are tokens); V: [32][value_dim] elements.
///   With a shared row K and V of a token are one: [32][head_dim] elements a head, V the first value_dim of each row.
///   Q8_0: int8, and behind the elements of each head's K or V their scales, f16 [width/32][32 tokens].
struct KvShape {
  DType type;
  std::size_t heads, head_dim, value_dim;
  bool shared_row = false;
};
[[gnu::always_inline]] constexpr bool kv_type_fits(DType type, std::size_t width) {
  return type == DType::kF16 || (type == DType::kQ8_0 && width % kKvScaleColumns == 0);
}
[[gnu::always_inline]] constexpr bool kv_type_fits(const KvShape& shape) {
  return kv_type_fits(shape.type, shape.head_dim) && (shape.shared_row || kv_type_fits(shape.type, shape.value_dim));
}
/// K, or V, of one head in a block.
[[gnu::always_inline]] constexpr std::size_t kv_head_bytes(DType type, std::size_t width) {
  return kKvBlockTokens * (type == DType::kF16 ? 2 * width : width + 2 * (width / kKvScaleColumns));
}
/// Where V of the first head begins.
[[gnu::always_inline]] constexpr std::size_t kv_values_offset(const KvShape& shape) {
  return shape.shared_row ? 0 : shape.heads * kv_head_bytes(shape.type, shape.head_dim);
}
[[gnu::always_inline]] constexpr std::size_t kv_block_bytes(const KvShape& shape) {
  return shape.heads * kv_head_bytes(shape.type, shape.head_dim) +
         (shape.shared_row ? 0 : shape.heads * kv_head_bytes(shape.type, shape.value_dim));
}

}  // namespace forge::cpu
