#pragma once
// What all kernels speak about: a tile of floats, and the place of a token in the KV cache.

#include <cstddef>
#include <cstdint>

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

/// Tokens of one block of the paged KV cache. A block of one layer, all f16:
/// K [kv_heads][head_dim][32] (transposed: the lanes are tokens), then V [kv_heads][32][head_dim].
inline constexpr std::size_t kKvBlockTokens = 32;
[[gnu::always_inline]] constexpr std::size_t kv_block_bytes(std::size_t kv_heads, std::size_t head_dim) {
  return 2 * kv_heads * head_dim * kKvBlockTokens * sizeof(std::uint16_t);
}

}  // namespace forge::cpu
