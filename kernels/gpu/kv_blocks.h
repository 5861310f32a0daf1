#pragma once
// The KV cache in q8_0 and q4_0: quants of 8 or 4 bits, and an f16 scale for 32 elements. 34 or 18 bytes for 32
// elements, as ggml's block_q8_0 and block_q4_0; q8_0 has the same numbers as the CPU's cache (kernels/cpu/tile.h).
//
//   [block][kv_heads] of: [block_tokens][Dim / 16] units, then scales [Dim / 32][block_tokens] f16
//
//   unit of q8_0   16 bytes: int8
//   unit of q4_0   8 bytes: quants + 8 in 4 bits. Byte j of a word has element j in its low bits, element j + 4 in its
//                  high ones, so that a mask gives four neighbouring elements in order
//
// Keys are multiplied by exact int8 dots with a query of 16 bits, so that no element of a key is converted; values are
// converted and multiplied by f32 weights, in which the scale is.

#include "kernels/gpu/kv_f16.h"

namespace forge::gpu {
namespace detail {
template <int Bits>
struct UnitOf {
  using Packed = U32x4;
};
template <>
struct UnitOf<4> {
  using Packed = U32x2;
};
}  // namespace detail

/// Bits: 8 (q8_0) or 4 (q4_0).
template <int Bits>
struct KvBlocks {
  static_assert(Bits == 8 || Bits == 4);
  static constexpr int kUnit = 16, kUnitBytes = 2 * Bits, kColumns = 32;
  static constexpr bool kScaled = true;
  static constexpr int kWordDims = 32 / Bits;       ///< elements of a word
  static constexpr int kZero = 1 << (Bits - 1);     ///< the unsigned byte of a quant that is 0
  static constexpr bool kStoredSigned = Bits == 8;  ///< else quants are stored as unsigned numbers
  /// In f16: two times -(kHalfBias + kZero), and the bits that turn a stored quant into kHalfBias + its unsigned byte.
  static constexpr u32 kOffsets = 0xe400e400u | kZero * 0x10001u;
  static constexpr u32 kHalfBits = 0x64006400u | (kStoredSigned ? kZero * 0x10001u : 0u);
  static constexpr u32 kHalfMask = ((1u << Bits) - 1) * 0x10001u;
  using Packed = typename detail::UnitOf<Bits>::Packed;

  /// Quants 4 i .. 4 i + 3 of some packed words, as bytes: signed ones, or with 4 bits the unsigned ones.
  template <class Words>
  FORGE_DEVICE static u32 four(const Words& words, int i) {
    if constexpr (Bits == 8)
      return words[i];
    else
      return words[i / 2] >> i % 2 * 4 & 0x0f0f0f0fu;
  }
  /// The unsigned bytes of four(), quants + kZero.
  FORGE_DEVICE static u32 unsigned_bytes(u32 four) { return kStoredSigned ? raised(four) : four; }

  template <int Dim, int BlockTokens>
  struct Rows {
    static_assert(Dim % kColumns == 0 && BlockTokens % 8 == 0,
                  "rows are whole blocks of 32 elements, and eight tokens' scales are aligned to 16 bytes");
    static constexpr int kRowBytes = Dim * Bits / 8, kHeadBytes = BlockTokens * (kRowBytes + Dim / kColumns * 2);
    FORGE_DEVICE static u64 byte_of(u64 row) { return row / BlockTokens * kHeadBytes + row % BlockTokens * kRowBytes; }
    FORGE_DEVICE static const u8* at(const u16* pool, u64 row, int unit) {
      return reinterpret_cast<const u8*>(pool) + byte_of(row) + unit * kUnitBytes;
    }
    /// Index of the scale of element `dim`, in f16 elements from the pool's start; the next token's follows it.
    FORGE_DEVICE static u64 scale_index(u64 row, int dim) {
      return (row / BlockTokens * kHeadBytes + BlockTokens * kRowBytes) / 2 +
             static_cast<u64>(dim / kColumns * BlockTokens) + row % BlockTokens;
    }
    FORGE_DEVICE static void store(u16* pool, u64 row, int dim, float value, bool real) {
      u16 scale;
      const u32 code = Bits == 8 ? code8(value, real, scale) : code4(value, real, scale);
      if constexpr (Bits == 4) {  // the lane of a byte's low bits stores it
        const u32 other = shuffle_xor<4>(code);
        if (real && dim % 8 < 4) bytes_of(pool, row)[byte_in_row(dim)] = static_cast<u8>(code | other << 4);
      } else {
        if (real) bytes_of(pool, row)[byte_in_row(dim)] = static_cast<u8>(code);
      }
      if (real && dim % kColumns == 0) pool[scale_index(row, dim)] = scale;
    }

   private:
    FORGE_DEVICE static u8* bytes_of(u16* pool, u64 row) { return reinterpret_cast<u8*>(pool) + byte_of(row); }
    /// As ggml does: scale = max |x| / 127, quants are x / scale rounded to the nearest. Like the CPU's, they are
    /// computed with the scale as stored, and a scale is NaN if an element is not finite.
    FORGE_DEVICE static u32 code8(float value, bool real, u16& scale) {
      const i32 bits = __builtin_bit_cast(i32, abs_of(value));  // in the order of magnitudes; infinities and NaN above
      const float step = __builtin_bit_cast(float, max_lanes<kColumns>(real ? bits : 0)) / 127.0f;
      scale = step <= 3.402823466e38f ? f16_of_f32(step) : static_cast<u16>(0x7e00);
      const float stored = f32_of_f16(scale);
      const float number = stored > 0 ? min_of(max_of(value * (1.0f / stored), -127.0f), 127.0f) : 0.0f;
      return static_cast<u32>(static_cast<i32>(round_of(number)));
    }
    /// As ggml does: scale = x / -8 for the x of the largest magnitude (of two, the negative one), quants + 8 are
    /// x / scale + 8.5 without its fraction, at most 15. Scales as for q8_0.
    FORGE_DEVICE static u32 code4(float value, bool real, u16& scale) {
      const u32 bits = __builtin_bit_cast(u32, value);
      const u32 most = max_lanes<kColumns>(real ? bits << 1 | bits >> 31 : 0u);  // ordered as above, the sign last
      const float step = __builtin_bit_cast(float, most >> 1 | most << 31) * -0.125f;
      scale = abs_of(step) <= 3.402823466e38f ? f16_of_f32(step) : static_cast<u16>(0x7e00);
      const float stored = f32_of_f16(scale);
      const float number = abs_of(stored) > 0 ? fma_of(value, 1.0f / stored, 8.5f) : 8.0f;
      return static_cast<u32>(static_cast<i32>(min_of(max_of(number, 0.0f), 15.0f)));
    }
  };
  /// The byte of element `dim` in a row, and where in that byte its quant begins.
  FORGE_DEVICE static constexpr int byte_in_row(int dim) { return dim / kWordDims * 4 + dim % 4; }
  FORGE_DEVICE static constexpr int shift_in_byte(int dim) { return dim % kWordDims / 4 * Bits; }

  struct Unit {
    U32x4 quants;  ///< four() of the unit
    float scale;
  };
  /// scales: of the tokens in pairs.
  template <int Tokens, int Own>
  struct Loaded {
    static constexpr int kPairs = ceil_div(Tokens, 2);
    Packed units[Tokens][Own];
    u32 scales[Own][kPairs];

    FORGE_DEVICE Unit open(int i, int own) const {
      Unit out;
      FORGE_UNROLL
      for (int w = 0; w < 4; ++w) out.quants.at[w] = four(units[i][own].at, w);
      out.scale = f32_of_f16(static_cast<u16>(scales[own][i / 2] >> i % 2 * 16));
      return out;
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

  /// A unit of a query in 16 bits: scale * (256 * high + low). start: what a dot with unsigned quants begins with, so
  /// that it is the dot with the quants.
  struct Query {
    U32x4 high, low;
    float scale;
    i32 start;
  };
  struct Sums {
    float at[kUnit];  ///< of the unsigned bytes
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
    Query out{{}, {}, finite ? amax * (1.0f / kMost) : __builtin_bit_cast(float, 0x7fc00000u), 0};
    FORGE_UNROLL
    for (int j = 0; j < kUnit; ++j) {
      const i32 number = inverse > 0 ? static_cast<i32>(round_of(x[j] * inverse)) : 0, high = (number + 128) >> 8;
      out.high.at[j / 4] |= static_cast<u32>(high & 255) << j % 4 * 8;
      out.low.at[j / 4] |= static_cast<u32>((number - high * 256) & 255) << j % 4 * 8;
      if constexpr (!kStoredSigned) out.start -= kZero * number;
    }
    return out;
  }
  FORGE_DEVICE static float add_product(const Query& q, const Unit& key, float sum) {
    i32 dot = dot16(q.high, key.quants, 0) * 256;
    if constexpr (!kStoredSigned) dot += q.start;
    dot = dot16(q.low, key.quants, dot);
    return fma_of(static_cast<float>(dot), q.scale * key.scale, sum);
  }
  /// Unsigned bytes take one instruction to convert; finished() takes kZero off again.
  FORGE_DEVICE static void add_weighted(float weight, const Unit& value, Sums& sums) {
    const float factor = weight * value.scale;
    sums.weights += factor;
    FORGE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const u32 bytes = unsigned_bytes(value.quants.at[j]);
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
    for (int j = 0; j < kUnit; ++j) sums.at[j] = fma_of(-static_cast<float>(kZero), sums.weights, sums.at[j]);
    return sums;
  }

  /// scale: in both halves. The products are rounded once.
  FORGE_DEVICE static void expand_unit(const Packed& unit, u32 scale, u32 (&pairs)[kUnit / 2]) {
    FORGE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const u32 bytes = unsigned_bytes(four(unit.at, w));
      pairs[2 * w] = fma_halves(add_halves(byte_halves<0>(bytes), kOffsets), scale, 0);
      pairs[2 * w + 1] = fma_halves(add_halves(byte_halves<1>(bytes), kOffsets), scale, 0);
    }
  }
  /// scales: of the two tokens.
  FORGE_DEVICE static void pair_tokens(u32 first, u32 second, u32 scales, u32 (&pairs)[kWordDims]) {
    const u32 words[2] = {low_halves(first, second), high_halves(first, second)};
    FORGE_UNROLL
    for (int j = 0; j < kWordDims; ++j) {
      const u32 two = words[j % 4 / 2] >> (j % 2 * 8 + shift_in_byte(j)) & kHalfMask;
      pairs[j] = fma_halves(add_halves(two ^ kHalfBits, kOffsets), scales, 0);
    }
  }

  struct TileKey {
    u32 words[Bits / 4];
    u32 scale;
    template <class Rows>
    FORGE_DEVICE void load(const u16* pool, u64 row, int unit) {
      load_words<Bits / 4>(Rows::at(pool, row, 0) + unit * Bits, words);
      scale = gpu::load(pool + Rows::scale_index(row, unit * 8));
    }
    FORGE_DEVICE U32x4 expand() const {
      U32x4 out;
      const float factor = f32_of_f16(static_cast<u16>(scale));
      expand_bytes_f16<kZero>(unsigned_bytes(four(words, 0)), factor, 0.0f, out.at);
      expand_bytes_f16<kZero>(unsigned_bytes(four(words, 1)), factor, 0.0f, out.at + 2);
      return out;
    }
  };
  struct TileValues {
    u32 pairs[8];  ///< two bytes of each token
    U32x4 scales;
    int shift;  ///< where in a byte the quant begins
    template <class Rows>
    FORGE_DEVICE void load(const u16* pool, u64 row, int dim, int from, int to) {
      const u8* first = Rows::at(pool, row, 0) + byte_in_row(dim);
      shift = shift_in_byte(dim);
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
        const float offset = -(kByteBias + kZero) * factor;
        const u32 bytes = unsigned_bytes(Bits == 8 ? pairs[j] : pairs[j] >> shift & 0x0f0fu);
        out[j] = f16_pair(fma_of(byte_number<0>(bytes), factor, offset), fma_of(byte_number<1>(bytes), factor, offset));
      }
    }
  };
};
using KvQ8_0 = KvBlocks<8>;
using KvQ4_0 = KvBlocks<4>;

}  // namespace forge::gpu
