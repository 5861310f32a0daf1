#pragma once
// The KV cache in f16, [block][kv_heads][block_tokens][Dim], and loads that formats share. What a format has:
// kv_pool.h.

#include "kernels/gpu/formats.h"

namespace forge::gpu {

/// Loads 1, 2 or a multiple of 4 words, aligned to their size or 16 bytes.
template <int Count>
FORGE_DEVICE void load_words(const u8* from, u32 (&out)[Count]) {
  static_assert(Count % 4 == 0 || Count == 2 || Count == 1, "whole loads");
  if constexpr (Count == 1) {
    out[0] = load4(from);
  } else if constexpr (Count == 2) {
    const U32x2 two = load8(from);
    out[0] = two.at[0];
    out[1] = two.at[1];
  } else {
    FORGE_UNROLL
    for (int i = 0; i < Count / 4; ++i) {
      const U32x4 four = load16(from + i * 16);
      FORGE_UNROLL
      for (int w = 0; w < 4; ++w) out[i * 4 + w] = four.at[w];
    }
  }
}
/// Loads 1, 2, 4 or a multiple of 8 neighbouring f16 elements, two in a word; aligned to their size or 16 bytes.
template <int Count, int Words>
FORGE_DEVICE void load_halves(const u16* from, u32 (&out)[Words]) {
  static_assert(Words == ceil_div(Count, 2) && (Count % 8 == 0 || (Count < 8 && is_power_of_two(Count))));
  if constexpr (Count == 1)
    out[0] = load(from);
  else
    load_words<Words>(reinterpret_cast<const u8*>(from), out);
}
/// Loads a unit as it is stored.
FORGE_DEVICE void load_packed(const u8* from, U32x4& unit) {
  unit = load16(from);
}
FORGE_DEVICE void load_packed(const u8* from, U32x2& unit) {
  unit = load8(from);
}

/// Arithmetic of formats without scales, whose units are opened to Count floats in Unit::at.
template <class Unit, int Count>
struct KvFloats {
  static constexpr int kUnit = Count;
  using Query = Unit;
  using Sums = Unit;
  FORGE_DEVICE static Query query_of(const float (&x)[Count]) {
    Query out;
    FORGE_UNROLL
    for (int j = 0; j < Count; ++j) out.at[j] = x[j];
    return out;
  }
  /// sum + q * key.
  FORGE_DEVICE static float add_product(const Query& q, const Unit& key, float sum) {
    FORGE_UNROLL
    for (int j = 0; j < Count; ++j) sum = fma_of(q.at[j], key.at[j], sum);
    return sum;
  }
  /// sums += weight * value.
  FORGE_DEVICE static void add_weighted(float weight, const Unit& value, Sums& sums) {
    FORGE_UNROLL
    for (int j = 0; j < Count; ++j) sums.at[j] = fma_of(weight, value.at[j], sums.at[j]);
  }
  FORGE_DEVICE static void scale(Sums& sums, float factor) {
    FORGE_UNROLL
    for (int j = 0; j < Count; ++j) sums.at[j] *= factor;
  }
  FORGE_DEVICE static const Sums& finished(const Sums& sums) { return sums; }
};

struct KvF16 : KvFloats<Elements<F16>, 8> {
  static constexpr int kUnitBytes = 16, kColumns = 8;
  static constexpr bool kScaled = false;
  using Packed = U32x4;

  template <int Dim, int BlockTokens>
  struct Rows {
    static constexpr int kRowBytes = 2 * Dim;  ///< from a token to the next one of a block
    /// The address of a unit of row number `row`.
    FORGE_DEVICE static const u8* at(const u16* pool, u64 row, int unit) {
      return reinterpret_cast<const u8*>(pool + row * Dim + unit * kUnit);
    }
    /// Stores element `dim` of a row. kColumns neighbouring lanes (or more) hold as many neighbouring elements; all
    /// lanes of the wave call this together.
    FORGE_DEVICE static void store(u16* pool, u64 row, int dim, float value, bool real) {
      if (real) pool[row * Dim + dim] = f16_of_f32(value);
    }
  };

  template <int Tokens, int Own>
  struct Loaded {
    Packed units[Tokens][Own];
    FORGE_DEVICE Elements<F16> open(int i, int own) const { return elements_of<F16>(units[i][own]); }
  };

  FORGE_DEVICE static void expand_unit(const Packed& unit, u32 /*scale*/, u32 (&pairs)[kUnit / 2]) {
    FORGE_UNROLL
    for (int w = 0; w < 4; ++w) pairs[w] = unit.at[w];
  }
  FORGE_DEVICE static void pair_tokens(u32 first, u32 second, u32 /*scales*/, u32 (&pairs)[2]) {
    pairs[0] = low_halves(first, second);
    pairs[1] = high_halves(first, second);
  }

  /// Eight elements of a key.
  struct TileKey {
    U32x4 halves;
    template <class Rows>
    FORGE_DEVICE void load(const u16* pool, u64 row, int unit) {
      halves = load16(Rows::at(pool, row, unit));
    }
    FORGE_DEVICE U32x4 expand() const { return halves; }
  };
  /// Two neighbouring elements of eight tokens.
  struct TileValues {
    u32 pairs[8];
    /// Loads tokens row + from .. row + to of 0 .. 7; the others stay as they are. dim: even.
    template <class Rows>
    FORGE_DEVICE void load(const u16* pool, u64 row, int dim, int from, int to) {
      const u8* first = Rows::at(pool, row, 0) + 2 * dim;
      FORGE_UNROLL
      for (int j = 0; j < 8; ++j)
        if (j >= from && j <= to) pairs[j] = gpu::load(reinterpret_cast<const u32*>(first + j * Rows::kRowBytes));
    }
    FORGE_DEVICE void expand(u32 (&out)[8]) const {
      FORGE_UNROLL
      for (int j = 0; j < 8; ++j) out[j] = pairs[j];
    }
  };
};

}  // namespace forge::gpu
