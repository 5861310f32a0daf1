#pragma once
// Matmul of BF16 and F16 weights by f32 activations with tiles of bf16 (TDPBF16PS), where a product is exact in f32.
//
// x is taken as the sum of two bf16 (16 bits of it, rounded), an f16 weight as the exact sum of two; of the four
// products of such parts the last, below 2^-15 of the whole, is left out. The error of a sum is about 1e-5 of it (nmse
// 1e-10), far below what the reference files' bounds for these types ask.
//
// A sum, for one row and one token: 32 columns after the other, and for each of them term after term (weight by x: high
// by high, high by low, low by high), acc = acc + (even + odd), even and odd being chains of fma from 0 over the 16
// even and the 16 odd columns; subnormals count as 0. That is what a tile does, so few rows, on vectors, do the same,
// and a token's bits do not depend on how many come with it. They differ from those of the classes without tiles.

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/matmul_int-inl.h"
#include "kernels/cpu/tile_shapes.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace forge::cpu::FORGE_CPU_NAMESPACE {

using Words16 = std::uint32_t __attribute__((vector_size(64)));
using Floats16 = float __attribute__((vector_size(64)));
using Shorts16 = std::uint16_t __attribute__((vector_size(32)));
using Shorts32 = std::uint16_t __attribute__((vector_size(64)));

inline constexpr std::size_t kFloatSteps = 16;  // of 32 columns, in a strip
inline constexpr std::size_t kFloatColumns = 32 * kFloatSteps;
inline constexpr std::size_t kFloatTokens = 96;  // whose parts of a strip, 192 KiB, lie in L2

struct TileBf16 {
  static constexpr bool kTwoParts = false;
  /// 16 rows' elements as f32 bits.
  FORGE_INLINE static Words16 load(const std::byte* line) {
    Shorts16 bits;
    std::memcpy(&bits, line, sizeof(bits));
    return __builtin_convertvector(bits, Words16) << 16;
  }
};
struct TileF16 {
  static constexpr bool kTwoParts = true;
  FORGE_INLINE static Words16 load(const std::byte* line) {
    float values[16];
    M::store(M::load_f16(reinterpret_cast<const std::uint16_t*>(line)), values);
    Words16 bits;
    std::memcpy(&bits, values, sizeof(bits));
    return bits;
  }
};

inline constexpr std::uint32_t kHighBits = 0xffff0000U;
FORGE_INLINE Words16 high_part(Words16 x) {
  return x & kHighBits;
}
/// What is left of x: exact for an f16 weight; of an activation its next 8 bits, rounded.
template <bool rounded>
FORGE_INLINE Words16 low_part(Words16 x) {
  const auto rest = (Words16)((Floats16)x - (Floats16)high_part(x));
  return rounded ? (rest + 0x8000U) & kHighBits : rest;
}

/// 16 tokens' bf16 for each 32 columns of a strip: [high, low][token][column].
struct alignas(64) FloatPanel {
  std::uint16_t parts[kFloatSteps][2][16][32];
};
/// A group's weights for each 32 columns of a strip: [high, low][pair of columns][row][column of the pair].
struct alignas(64) FloatWeights {
  std::uint16_t parts[kFloatSteps][2][16][32];
};

FORGE_INLINE void load_columns(const float* x, std::size_t count, Words16& first, Words16& second) {
  float padded[32];
  if (count < 32) {
    std::memset(padded, 0, sizeof(padded));
    std::memcpy(padded, x, count * sizeof(float));
    x = padded;
  }
  std::memcpy(&first, x, sizeof(first));
  std::memcpy(&second, x + 16, sizeof(second));
}
/// The high halves of 32 words.
FORGE_INLINE void store_high_halves(Words16 first, Words16 second, std::uint16_t* out) {
  const Shorts32 halves =
      __builtin_shufflevector((Shorts32)first, (Shorts32)second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                              31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
  std::memcpy(out, &halves, sizeof(halves));
}

/// Columns [first, first + columns) of `tokens` (at most 16) rows; rows behind them are zeros.
inline void fill_float_panel(const PanelSource& source, std::size_t first_token, std::size_t tokens, std::size_t first,
                             std::size_t columns, FloatPanel& panel) {
  for (std::size_t step = 0; step < divide_up(columns, 32); ++step) {
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto* x = reinterpret_cast<const float*>(source.row(first_token + t)) + first + 32 * step;
      Words16 a, b;
      load_columns(x, columns - 32 * step, a, b);
      store_high_halves(a, b, panel.parts[step][0][t]);
      store_high_halves(low_part<true>(a), low_part<true>(b), panel.parts[step][1][t]);
    }
    for (auto& part : panel.parts[step])
      if (tokens < 16) std::memset(part[tokens], 0, (16 - tokens) * sizeof(part[0]));
  }
}

template <class Weight>
void unpack_float_weights(const std::byte* lines, std::size_t columns, FloatWeights& out) {
  for (std::size_t pair = 0; pair < 16 * divide_up(columns, 32); ++pair) {
    const Words16 even = 2 * pair < columns ? Weight::load(lines + 64 * pair) : Words16{};
    const Words16 odd = 2 * pair + 1 < columns ? Weight::load(lines + 64 * pair + 32) : Words16{};
    auto& parts = out.parts[pair / 16];
    const Words16 high = even >> 16 | high_part(odd);
    std::memcpy(parts[0][pair % 16], &high, sizeof(high));
    if constexpr (Weight::kTwoParts) {
      const Words16 low = low_part<false>(even) >> 16 | high_part(low_part<false>(odd));
      std::memcpy(parts[1][pair % 16], &low, sizeof(low));
    }
  }
}

/// Four tiles of sums, two of x, two of weights.
struct FloatTiles {
  static constexpr TileShapes kShapes = [] {
    TileShapes shapes;
    for (std::size_t tile = 0; tile < 8; ++tile) shapes.set(tile, 16, 64);
    return shapes;
  }();
};

/// kTiles times 16 tokens by G groups over a strip, added to sums[token tile][group], each at its pointer.
template <class Weight, int kTiles, int G>
void float_tile_strip(const FloatPanel* x, const FloatWeights* weights, std::size_t steps, float* const* sums,
                      std::size_t stride, bool first) {
  unrolled<kTiles * G>([&]<int i>() FORGE_INLINE_BODY {
    if (first)
      Tiles::zero<i>();
    else
      Tiles::load<i>(sums[i], stride);
  });
  const auto load_x = [&](std::size_t step, int part) FORGE_INLINE_BODY {
    unrolled<kTiles>([&]<int t>() FORGE_INLINE_BODY { Tiles::load<4 + t>(x[t].parts[step][part], 64); });
  };
  const auto load_weights = [&](std::size_t step, int part) FORGE_INLINE_BODY {
    unrolled<G>([&]<int g>() FORGE_INLINE_BODY { Tiles::load<6 + g>(weights[g].parts[step][part], 64); });
  };
  const auto multiply = [&]() FORGE_INLINE_BODY {
    unrolled<kTiles * G>([&]<int i>() FORGE_INLINE_BODY { Tiles::dot_bf16<i, 4 + i / G, 6 + i % G>(); });
  };
  for (std::size_t step = 0; step < steps; ++step) {
    load_weights(step, 0);
    load_x(step, 0);
    multiply();
    load_x(step, 1);
    multiply();
    if constexpr (Weight::kTwoParts) {
      load_weights(step, 1);
      load_x(step, 0);
      multiply();
    }
  }
  unrolled<kTiles * G>([&]<int i>() FORGE_INLINE_BODY { Tiles::store<i>(sums[i], stride); });
}

/// Tokens of a call (at most kFloatTokens), a whole number of tiles of 16 but for the last.
template <class Weight>
void float_tiles(const std::byte* weights, std::size_t groups, const PanelSource& source, std::size_t first_token,
                 std::size_t tokens, float* out, std::size_t out_stride) {
  FloatPanel panels[kFloatTokens / 16];
  FloatWeights unpacked[2];
  // the last tile's sums, where it is not whole, of every pair of groups in turn
  alignas(64) float rest[2][16][16];
  const std::size_t tiles = divide_up(tokens, 16);
  for (std::size_t first = 0; first < source.k || first == 0; first += kFloatColumns) {
    const std::size_t columns = source.k - first < kFloatColumns ? source.k - first : kFloatColumns;
    for (std::size_t tile = 0; tile < tiles; ++tile)
      fill_float_panel(source, first_token + 16 * tile, tokens - 16 * tile < 16 ? tokens - 16 * tile : 16, first,
                       columns, panels[tile]);
    for (std::size_t group = 0; group < groups; group += 2) {
      const std::size_t together = groups - group < 2 ? 1 : 2;
      for (std::size_t g = 0; g < together; ++g)
        unpack_float_weights<Weight>(weights + ((group + g) * source.k + first) * 32, columns, unpacked[g]);
      const auto run = [&]<int kTiles>(std::size_t tile, float* const* sums, std::size_t stride) {
        (together == 2 ? float_tile_strip<Weight, kTiles, 2>
                       : float_tile_strip<Weight, kTiles, 1>)(panels + tile, unpacked, divide_up(columns, 32), sums,
                                                              stride, first == 0);
      };
      const std::size_t whole = tokens / 16;
      for (std::size_t tile = 0; tile < whole; tile += 2) {
        float* sums[4];
        for (std::size_t i = 0; i < 4; ++i)
          sums[i] = out + 16 * (tile + i / together) * out_stride + 16 * (group + i % together);
        if (whole - tile >= 2)
          run.template operator()<2>(tile, sums, 4 * out_stride);
        else
          run.template operator()<1>(tile, sums, 4 * out_stride);
      }
      if (whole == tiles) continue;
      float* const sums[2] = {rest[0][0], rest[1][0]};
      const auto move_rest = [&](auto&& move) {
        for (std::size_t g = 0; g < together; ++g)
          for (std::size_t t = 16 * whole; t < tokens; ++t)
            move(out + t * out_stride + 16 * (group + g), rest[g][t - 16 * whole]);
      };
      if (first != 0) move_rest([](const float* from, float* to) { std::memcpy(to, from, 64); });
      run.template operator()<1>(whole, sums, 64);
      move_rest([](float* to, const float* from) { std::memcpy(to, from, 64); });
    }
  }
}

/// Subnormals become zeros, as they are to tiles, until the mode that this returns is restored.
FORGE_INLINE unsigned flush_subnormals() {
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);  // FTZ, DAZ
  return before;
#else
  return 0;
#endif
}
FORGE_INLINE void restore_subnormals([[maybe_unused]] unsigned mode) {
#if defined(__x86_64__)
  _mm_setcsr(mode);
#endif
}

FORGE_INLINE Floats16 fused16(Floats16 a, Floats16 b, Floats16 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#else
  for (int i = 0; i < 16; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

FORGE_INLINE Floats16 all16(float x) {
  return Floats16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

/// T tokens by one group.
template <class Weight, int T>
void float_few_rows(const std::byte* weights, std::size_t k, const float (*x)[2][kFloatColumns], float* out,
                    std::size_t out_stride, bool first) {
  constexpr int kTerms = Weight::kTwoParts ? 3 : 2;
  Floats16 sums[T];
#pragma GCC unroll 4
  for (std::size_t t = 0; t < T; ++t) {
    sums[t] = Floats16{};
    if (!first) std::memcpy(&sums[t], out + t * out_stride, sizeof(sums[t]));
  }
  for (std::size_t at = 0; at < k; at += 32) {
    Floats16 chains[T][kTerms][2]{};
    const std::size_t end = k - at < 32 ? k : at + 32;
    const auto column = [&]<int odd>(std::size_t i) FORGE_INLINE_BODY {
      const Words16 w = Weight::load(weights + 32 * i);
      const auto high = (Floats16)high_part(w), low = (Floats16)low_part<false>(w);
#pragma GCC unroll 4
      for (std::size_t t = 0; t < T; ++t) {
        const Floats16 x_high = all16(x[t][0][i]), x_low = all16(x[t][1][i]);
        chains[t][0][odd] = fused16(high, x_high, chains[t][0][odd]);
        chains[t][1][odd] = fused16(high, x_low, chains[t][1][odd]);
        if constexpr (kTerms == 3) chains[t][2][odd] = fused16(low, x_high, chains[t][2][odd]);
      }
    };
    for (std::size_t i = at; i < end; i += 2) {
      column.template operator()<0>(i);
      if (i + 1 < end) column.template operator()<1>(i + 1);
    }
#pragma GCC unroll 4
    for (std::size_t t = 0; t < T; ++t)
#pragma GCC unroll 3
      for (int term = 0; term < kTerms; ++term) sums[t] += chains[t][term][0] + chains[t][term][1];
  }
#pragma GCC unroll 4
  for (std::size_t t = 0; t < T; ++t) std::memcpy(out + t * out_stride, &sums[t], sizeof(sums[t]));
}

/// Any number of tokens on vectors.
template <class Weight>
void float_vectors(const std::byte* weights, std::size_t groups, const PanelSource& source, std::size_t tokens,
                   float* out, std::size_t out_stride) {
  constexpr std::size_t kTokens = 4;
  const unsigned mode = flush_subnormals();
  alignas(64) float x[kTokens][2][kFloatColumns];
  for (std::size_t token = 0; token < tokens; token += kTokens) {
    const std::size_t count = tokens - token < kTokens ? tokens - token : kTokens;
    const auto run = count == 4   ? float_few_rows<Weight, 4>
                     : count == 3 ? float_few_rows<Weight, 3>
                     : count == 2 ? float_few_rows<Weight, 2>
                                  : float_few_rows<Weight, 1>;
    for (std::size_t first = 0; first < source.k; first += kFloatColumns) {
      const std::size_t columns = source.k - first < kFloatColumns ? source.k - first : kFloatColumns;
      for (std::size_t t = 0; t < count; ++t)
        for (std::size_t i = 0; i < columns; i += 32) {
          Words16 a, b;
          load_columns(reinterpret_cast<const float*>(source.row(token + t)) + first + i, columns - i, a, b);
          const Words16 parts[2][2] = {{high_part(a), high_part(b)}, {low_part<true>(a), low_part<true>(b)}};
          for (std::size_t part = 0; part < 2; ++part) std::memcpy(x[t][part] + i, parts[part], sizeof(parts[part]));
        }
      for (std::size_t group = 0; group < groups; ++group)
        run(weights + (group * source.k + first) * 32, columns, x, out + token * out_stride + 16 * group, out_stride,
            first == 0);
    }
  }
  restore_subnormals(mode);
}

/// Fewer rows than this go to vectors, which read weights once and unpack nothing.
inline constexpr std::size_t kFloatTileRowsMin = 8;

template <class Weight>
void matmul_float_tiles(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                        std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                        std::size_t out_stride) {
  if (tokens == 0 || groups == 0) return;
  const PanelSource source{x, x_row_bytes, k, row_map};
  if (tokens < kFloatTileRowsMin) {
    float_vectors<Weight>(weights, groups, source, tokens, out, out_stride);
    return;
  }
  Tiles::configure(FloatTiles::kShapes);
  for (std::size_t token = 0; token < tokens; token += kFloatTokens)
    float_tiles<Weight>(weights, groups, source, token, tokens - token < kFloatTokens ? tokens - token : kFloatTokens,
                        out + token * out_stride, out_stride);
  Tiles::release();
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
