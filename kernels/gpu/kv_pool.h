#pragma once
// The paged pool of a layer's keys or values, and the formats in which it keeps rows. A slot is a token's place in the
// pool: block * block_tokens + its place in the block. A row is what a head has in a slot: Dim elements.
//
// A format (KvF16, KvQ8_0) has:
//
//   kUnit         elements of a unit, the 16 bytes that a lane loads
//   kColumns      Dim is a multiple of this; so are the columns of a block that stores rows
//   kScaled       rows have scales. Then a team's tokens follow each other, so that one load has the scales of all
//   Rows          where the rows of a pool are, and how they are stored
//   Loaded        for attention.h: a lane's units of some rows. open() makes one ready to be multiplied
//   Query, Sums   for attention.h: a unit of a query; sums of weighted values. add_product, add_weighted, scale,
//   finished TileKey, TileValues   for attention_tiles.h: the same for matrix tiles, as F16 numbers
//   expand_unit,  for attention_head_tiles.h, as F16 numbers too: a unit in pairs of neighbouring elements; a word of
//   pair_tokens   two tokens in pairs of the same element
//
// KvF16   [block][kv_heads][block_tokens][Dim] f16
// KvQ8_0  [block][kv_heads] of: [block_tokens][Dim] int8, then scales [Dim / 32][block_tokens] f16. It is 34 bytes for
// 32
//         elements, as ggml's block_q8_0, and the same numbers as the CPU's cache (kernels/cpu/tile.h)

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

struct KvF16 {
  static constexpr int kUnit = 8, kColumns = 8;
  static constexpr bool kScaled = false;

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
    U32x4 units[Tokens][Own];
    FORGE_DEVICE Elements<F16> open(int i, int own) const { return elements_of<F16>(units[i][own]); }
  };
  using Query = Elements<F16>;
  using Sums = Elements<F16>;
  FORGE_DEVICE static Query query_of(const float (&x)[kUnit]) {
    Query out;
    FORGE_UNROLL
    for (int j = 0; j < kUnit; ++j) out.at[j] = x[j];
    return out;
  }
  /// sum + q * key.
  FORGE_DEVICE static float add_product(const Query& q, const Elements<F16>& key, float sum) {
    FORGE_UNROLL
    for (int j = 0; j < kUnit; ++j) sum = fma_of(q.at[j], key.at[j], sum);
    return sum;
  }
  /// sums += weight * value.
  FORGE_DEVICE static void add_weighted(float weight, const Elements<F16>& value, Sums& sums) {
    FORGE_UNROLL
    for (int j = 0; j < kUnit; ++j) sums.at[j] = fma_of(weight, value.at[j], sums.at[j]);
  }
  FORGE_DEVICE static void scale(Sums& sums, float factor) {
    FORGE_UNROLL
    for (int j = 0; j < kUnit; ++j) sums.at[j] *= factor;
  }
  FORGE_DEVICE static const Sums& finished(const Sums& sums) { return sums; }

  FORGE_DEVICE static void expand_unit(const U32x4& unit, u32 /*scale*/, u32 (&pairs)[kUnit / 2]) {
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

/// int8 with a scale for 32 elements. Keys are multiplied by exact int8 dots with a query of 16 bits, so that no
/// element of a key is converted; values are converted and multiplied by f32 weights, in which the scale is.
struct KvQ8_0 {
  static constexpr int kUnit = 16, kColumns = 32;
  static constexpr bool kScaled = true;
  static constexpr float kRaised = 128;  ///< what raised() adds to a byte
  /// In f16: two times -(kHalfBias + kRaised), and the bits that turn a byte into kHalfBias + kRaised + the byte.
  static constexpr u32 kOffsets = 0xe480e480u, kRaisedHalves = 0x64806480u;

  template <int Dim, int BlockTokens>
  struct Rows {
    static_assert(Dim % kColumns == 0 && BlockTokens % 8 == 0,
                  "rows are whole blocks of 32 elements, and eight tokens' scales are aligned to 16 bytes");
    static constexpr int kRowBytes = Dim, kHeadBytes = BlockTokens * (Dim + Dim / kColumns * 2);
    FORGE_DEVICE static u64 byte_of(u64 row) { return row / BlockTokens * kHeadBytes + row % BlockTokens * kRowBytes; }
    FORGE_DEVICE static const u8* at(const u16* pool, u64 row, int unit) {
      return reinterpret_cast<const u8*>(pool) + byte_of(row) + unit * kUnit;
    }
    /// Index of the scale of element `dim`, in f16 elements from the pool's start; the next token's follows it.
    FORGE_DEVICE static u64 scale_index(u64 row, int dim) {
      return (row / BlockTokens * kHeadBytes + BlockTokens * kRowBytes) / 2 +
             static_cast<u64>(dim / kColumns * BlockTokens) + row % BlockTokens;
    }
    /// As ggml does: scale = max |x| / 127, quants are x / scale rounded to the nearest. Like the CPU's, they are
    /// computed with the scale as stored, and a scale is NaN if an element is not finite.
    FORGE_DEVICE static void store(u16* pool, u64 row, int dim, float value, bool real) {
      const i32 bits = __builtin_bit_cast(i32, abs_of(value));  // in the order of magnitudes; infinities and NaN above
      const float step = __builtin_bit_cast(float, max_lanes<kColumns>(real ? bits : 0)) / 127.0f;
      const u16 scale = step <= 3.402823466e38f ? f16_of_f32(step) : static_cast<u16>(0x7e00);
      const float stored = f32_of_f16(scale);
      const float number = stored > 0 ? min_of(max_of(value * (1.0f / stored), -127.0f), 127.0f) : 0.0f;
      if (!real) return;
      reinterpret_cast<u8*>(pool)[byte_of(row) + dim] = static_cast<u8>(static_cast<i32>(round_of(number)));
      if (dim % kColumns == 0) pool[scale_index(row, dim)] = scale;
    }
  };

  struct Unit {
    U32x4 quants;
    float scale;
  };
  /// scales: of the tokens in pairs.
  template <int Tokens, int Own>
  struct Loaded {
    static constexpr int kPairs = ceil_div(Tokens, 2);
    U32x4 units[Tokens][Own];
    u32 scales[Own][kPairs];

    FORGE_DEVICE Unit open(int i, int own) const {
      return {units[i][own], f32_of_f16(static_cast<u16>(scales[own][i / 2] >> i % 2 * 16))};
    }
    /// Loads the scales of the tokens from number `row` on, of a lane's unit.
    template <class Rows>
    FORGE_DEVICE void load_scales(const u16* pool, u64 row, int unit, int own) {
      load_halves<Tokens>(pool + Rows::scale_index(row, unit * kUnit), scales[own]);
    }
    /// Loads the scale of token i alone, which the producer has written after load_scales. Its cache line is in the
    /// first cache already, so this load goes past it.
    template <class Rows>
    FORGE_DEVICE void load_scale(const u16* pool, u64 row, int unit, int i, int own) {
      const u64 at = Rows::scale_index(row, unit * kUnit);
      const u32 two = __builtin_bit_cast(u32, load_fresh(reinterpret_cast<const float*>(pool) + at / 2));
      set_scale(i, own, static_cast<u16>(two >> at % 2 * 16));
    }
    FORGE_DEVICE void set_scale(int i, int own, u16 scale) {
      u32& pair = scales[own][i / 2];
      pair = i % 2 == 0 ? (pair & 0xffff0000u) | scale : (pair & 0xffffu) | static_cast<u32>(scale) << 16;
    }
  };

  /// A unit of a query in 16 bits: scale * (256 * high + low).
  struct Query {
    U32x4 high, low;
    float scale;
  };
  struct Sums {
    float at[kUnit];  ///< of the raised elements
    float weights;
  };
  FORGE_DEVICE static Query query_of(const float (&x)[kUnit]) {
    constexpr float kMost = 127 * 256;
    i32 most = 0;
    FORGE_UNROLL
    for (int j = 0; j < kUnit; ++j) {
      const i32 bits = __builtin_bit_cast(i32, abs_of(x[j]));
      most = bits > most ? bits : most;
    }
    const float amax = __builtin_bit_cast(float, most);
    const bool finite = amax <= 3.402823466e38f;
    const float inverse = finite && amax > 1e-30f ? kMost / amax : 0.0f;
    Query out{{}, {}, finite ? amax * (1.0f / kMost) : __builtin_bit_cast(float, 0x7fc00000u)};
    FORGE_UNROLL
    for (int j = 0; j < kUnit; ++j) {
      const i32 number = inverse > 0 ? static_cast<i32>(round_of(x[j] * inverse)) : 0, high = (number + 128) >> 8;
      out.high.at[j / 4] |= static_cast<u32>(high & 255) << j % 4 * 8;
      out.low.at[j / 4] |= static_cast<u32>((number - high * 256) & 255) << j % 4 * 8;
    }
    return out;
  }
  FORGE_DEVICE static float add_product(const Query& q, const Unit& key, float sum) {
    const i32 dot = dot16(q.low, key.quants, dot16(q.high, key.quants, 0) * 256);
    return fma_of(static_cast<float>(dot), q.scale * key.scale, sum);
  }
  /// The bytes are raised to unsigned ones, which take one instruction to convert; finished() takes that off again.
  FORGE_DEVICE static void add_weighted(float weight, const Unit& value, Sums& sums) {
    const float factor = weight * value.scale;
    sums.weights += factor;
    FORGE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const u32 bytes = raised(value.quants.at[j]);
      sums.at[4 * j] = fma_of(factor, byte_number<0>(bytes) - kByteBias, sums.at[4 * j]);
      sums.at[4 * j + 1] = fma_of(factor, byte_number<1>(bytes) - kByteBias, sums.at[4 * j + 1]);
      sums.at[4 * j + 2] = fma_of(factor, byte_number<2>(bytes) - kByteBias, sums.at[4 * j + 2]);
      sums.at[4 * j + 3] = fma_of(factor, byte_number<3>(bytes) - kByteBias, sums.at[4 * j + 3]);
    }
  }
  FORGE_DEVICE static void scale(Sums& sums, float factor) {
    sums.weights *= factor;
    FORGE_UNROLL
    for (int j = 0; j < kUnit; ++j) sums.at[j] *= factor;
  }
  FORGE_DEVICE static Sums finished(Sums sums) {
    FORGE_UNROLL
    for (int j = 0; j < kUnit; ++j) sums.at[j] = fma_of(-kRaised, sums.weights, sums.at[j]);
    return sums;
  }

  /// scale: in both halves. The products are rounded once.
  FORGE_DEVICE static void expand_unit(const U32x4& unit, u32 scale, u32 (&pairs)[kUnit / 2]) {
    FORGE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const u32 bytes = raised(unit.at[w]);
      pairs[2 * w] = fma_halves(add_halves(byte_halves<0>(bytes), kOffsets), scale, 0);
      pairs[2 * w + 1] = fma_halves(add_halves(byte_halves<1>(bytes), kOffsets), scale, 0);
    }
  }
  /// scales: of the two tokens.
  FORGE_DEVICE static void pair_tokens(u32 first, u32 second, u32 scales, u32 (&pairs)[4]) {
    const u32 words[2] = {low_halves(first, second), high_halves(first, second)};
    FORGE_UNROLL
    for (int j = 0; j < 4; ++j)
      pairs[j] = fma_halves(add_halves((words[j / 2] >> j % 2 * 8 & 0x00ff00ffu) ^ kRaisedHalves, kOffsets), scales, 0);
  }

  struct TileKey {
    U32x2 quants;
    u32 scale;
    template <class Rows>
    FORGE_DEVICE void load(const u16* pool, u64 row, int unit) {
      quants = load8(Rows::at(pool, row, 0) + unit * 8);
      scale = gpu::load(pool + Rows::scale_index(row, unit * 8));
    }
    FORGE_DEVICE U32x4 expand() const {
      U32x4 out;
      const float factor = f32_of_f16(static_cast<u16>(scale));
      expand_bytes_f16<128>(raised(quants.at[0]), factor, 0.0f, out.at);
      expand_bytes_f16<128>(raised(quants.at[1]), factor, 0.0f, out.at + 2);
      return out;
    }
  };
  struct TileValues {
    u32 pairs[8];  ///< two bytes of each token
    U32x4 scales;
    template <class Rows>
    FORGE_DEVICE void load(const u16* pool, u64 row, int dim, int from, int to) {
      const u8* first = Rows::at(pool, row, 0) + dim;
      scales = load16(pool + Rows::scale_index(row, dim));
      FORGE_UNROLL
      for (int j = 0; j < 8; ++j)
        if (j >= from && j <= to) pairs[j] = gpu::load(reinterpret_cast<const u16*>(first + j * Rows::kRowBytes));
    }
    /// Makes the scales zeros but for tokens from .. to: the others' have been loaded too, and may be anything.
    FORGE_DEVICE void keep_scales(int from, int to) {
      FORGE_UNROLL
      for (int j = 0; j < 8; ++j)
        if (j < from || j > to) scales.at[j / 2] &= j % 2 == 0 ? 0xffff0000u : 0xffffu;
    }
    FORGE_DEVICE void expand(u32 (&out)[8]) const {
      FORGE_UNROLL
      for (int j = 0; j < 8; ++j) {
        const float factor = f32_of_f16(static_cast<u16>(scales.at[j / 2] >> j % 2 * 16));
        const float offset = -(kByteBias + kRaised) * factor;
        const u32 bytes = raised(pairs[j]);
        out[j] = f16_pair(fma_of(byte_number<0>(bytes), factor, offset), fma_of(byte_number<1>(bytes), factor, offset));
      }
    }
  };
};

template <int KvHeads, int HeadDim, int BlockTokens, class FormatOf = KvF16>
struct KvPool {
  using Format = FormatOf;
  static constexpr int kKvHeads = KvHeads, kHeadDim = HeadDim, kBlockTokens = BlockTokens;
  /// Rows of Dim elements: HeadDim, or as many as a value has.
  template <int Dim>
  using Rows = typename Format::template Rows<Dim, BlockTokens>;

  /// The number of a row, which is that of a head in a slot.
  FORGE_DEVICE static u64 row(int slot, int head) {
    const u64 block = static_cast<u64>(slot / BlockTokens);
    return (block * KvHeads + head) * BlockTokens + slot % BlockTokens;
  }
  /// Index of an element in f16 elements; KvF16 only.
  FORGE_DEVICE static u64 index(int slot, int head, int dim) { return row(slot, head) * HeadDim + dim; }
  /// The slot of token t by the block table of its sequence, [sequences][table_blocks]; -1 for padding (position -1).
  /// Returned as the bits of a float, because epilogue operands are floats.
  FORGE_DEVICE static float slot_bits(const i32* positions, const i32* sequences, const i32* tables, int table_blocks,
                                      int t) {
    const int position = load(element(positions, static_cast<u32>(t)));
    if (position < 0) return __builtin_bit_cast(float, -1);
    const u32 row = static_cast<u32>(load(element(sequences, static_cast<u32>(t)))) * static_cast<u32>(table_blocks);
    const u32 block = static_cast<u32>(position) / BlockTokens, place = static_cast<u32>(position) % BlockTokens;
    return __builtin_bit_cast(float, static_cast<u32>(load(element(tables, row + block))) * BlockTokens + place);
  }
  /// Stores one value of a token's keys or values; `column` counts over [kv_heads][head_dim]. Format::kColumns
  /// neighbouring lanes hold as many neighbouring columns, from a multiple of it on; all lanes of the wave call this.
  FORGE_DEVICE static void store(u16* pool, float slot_bits, int column, float value, bool real) {
    const int slot = __builtin_bit_cast(int, slot_bits);
    const bool stored = real && slot >= 0;
    Rows<HeadDim>::store(pool, row(stored ? slot : 0, column / HeadDim), column % HeadDim, value, stored);
  }
};

}  // namespace forge::gpu
