#pragma once
// Matmul of F32, F16 and BF16 weights by f32 activations. Lanes are rows. However many tokens there are, the order of a
// sum is the same: in each kFloatBlock columns the even ones are one chain of fma and the odd ones another; the two are
// added, and then blocks in order. Two chains, since one waits for itself where a single token streams its weights.
//
// Loops, outermost first: strips of k; vectors of rows; tiles of tokens. A tile is two vectors of rows by up to
// kFloatTokens tokens, so that two loads of weights, which convert them, and a broadcast a token feed two fma a token;
// meanwhile the first tiles fetch the weights of the next two vectors, which lie too far away for the hardware's
// prefetcher (Zen 5, the 1B shape, 128 tokens, one thread: F16 87 tokens/s without, 99 with; F32 86 and 98). A few
// tokens take one vector at a time: weights are then one stream. x is copied once a strip into a panel, [k/8][T][8] for
// each tile, so that the inner loop has one pointer for x and constant offsets; a single token is its own panel. Sums
// are carried from strip to strip through `out`, which rounds nothing.

#include "kernels/cpu/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

struct LoadF32 {
  static constexpr std::size_t kBytes = 4;
  FORGE_INLINE static B load(const std::byte* p) { return base_load(reinterpret_cast<const float*>(p)); }
};
struct LoadF16 {
  static constexpr std::size_t kBytes = 2;
  FORGE_INLINE static B load(const std::byte* p) { return base_load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
};
struct LoadBf16 {
  static constexpr std::size_t kBytes = 2;
  FORGE_INLINE static B load(const std::byte* p) { return base_load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
};

/// Two chains for each of two vectors a token, two vectors of weights and one of x: 31 of 32 registers, or 15 of 16.
inline constexpr int kFloatTokens = kLanes == 16 ? 7 : 3;
inline constexpr int kFloatFewTokens = 3;
inline constexpr std::size_t kFloatChunk = 8;                 ///< of k, in the panel
inline constexpr std::size_t kFloatBlock = 256;               ///< of k: two groups of 16-bit weights in 16 KiB
inline constexpr std::size_t kFloatPanel = 96 * kFloatBlock;  ///< floats: of L2

/// Vectors of rows by T tokens over a strip, which is whole blocks but at the end of k.
struct FloatTile {
  const std::byte* weights;  ///< of the first vector and the strip's first k
  std::size_t second;        ///< bytes from a vector's weights to the next one's
  std::size_t k;             ///< of the strip
  const float* panel;
  float* out;
  std::size_t out_stride;
  bool first;         ///< out holds nothing yet
  unsigned fetching;  ///< bit v: vector v's place `ahead` bytes on is fetched
  std::size_t ahead;
};

template <class Weight, int V, int T>
void float_tile(const FloatTile& tile) {
  constexpr std::size_t kColumn = 16 * Weight::kBytes;
  const std::byte* weights = tile.weights;
  const float* panel = tile.panel;
  B sums[2][V][T];
  const auto column = [&](std::size_t i) FORGE_INLINE_BODY {
    B w[V];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < V; ++v) w[v] = Weight::load(weights + v * tile.second + i * kColumn);
#pragma GCC unroll 7
    for (std::size_t t = 0; t < T; ++t) {
      const B x = base_set1(panel[t * kFloatChunk + i]);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < V; ++v) sums[i % 2][v][t] = fma(w[v], x, sums[i % 2][v][t]);
    }
  };
  const auto fetch_column = [&](std::size_t i) FORGE_INLINE_BODY {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < V; ++v)
      if ((tile.fetching >> v & 1) != 0) __builtin_prefetch(weights + v * tile.second + tile.ahead + i * kColumn, 0, 2);
  };
  bool first = tile.first;
  std::size_t left = tile.k;
  do {
#pragma GCC unroll 2
    for (auto& chain : sums)
#pragma GCC unroll 2
      for (auto& vector : chain)
#pragma GCC unroll 7
        for (B& sum : vector) sum = base_set1(0.0f);
    const std::size_t count = left < kFloatBlock ? left : kFloatBlock;
    std::size_t at = 0;
    for (; at + kFloatChunk <= count; at += kFloatChunk) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kFloatChunk; ++i) {
        if (i * kColumn % 64 == 0) fetch_column(i);
        column(i);
      }
      weights += kFloatChunk * kColumn;
      panel += kFloatChunk * T;
    }
#pragma GCC unroll 7
    for (std::size_t i = 0; i < kFloatChunk - 1; ++i)
      if (at + i < count) column(i);
#pragma GCC unroll 2
    for (std::size_t v = 0; v < V; ++v)
#pragma GCC unroll 7
      for (std::size_t t = 0; t < T; ++t) {
        float* out = tile.out + t * tile.out_stride + v * kLanes;
        const B block = add(sums[0][v][t], sums[1][v][t]);
        base_store(first ? block : add(base_load(out), block), out);
      }
    first = false;
    left -= count;
  } while (left > 0);
}

using FloatTileFn = void (*)(const FloatTile&);
/// float_tile<Weight, V, count> for count in [1, T].
template <class Weight, int V, int T>
FORGE_INLINE FloatTileFn float_tile_for(std::size_t count) {
  if constexpr (T > 1)
    if (count < T) return float_tile_for<Weight, V, T - 1>(count);
  return float_tile<Weight, V, T>;
}

/// Columns [first, first + count) of `tokens` tokens.
FORGE_INLINE void fill_float_panel(const PanelSource& source, std::size_t first_token, std::size_t tokens,
                                   std::size_t first, std::size_t count, float* panel) {
  for (std::size_t t = 0; t < tokens; ++t) {
    const float* row = reinterpret_cast<const float*>(source.row(first_token + t)) + first;
    float* to = panel + t * kFloatChunk;
    std::size_t at = 0;
    for (; at + kFloatChunk <= count; at += kFloatChunk, to += tokens * kFloatChunk)
      std::memcpy(to, row + at, kFloatChunk * sizeof(float));
    std::memcpy(to, row + at, (count - at) * sizeof(float));
  }
}

/// At most kFloatPanel / kFloatBlock tokens.
template <class Weight>
void matmul_float_tiles(const std::byte* weights, std::size_t k, std::size_t groups, const PanelSource& source,
                        std::size_t token0, std::size_t tokens, float* out, std::size_t out_stride) {
  constexpr std::size_t kColumn = 16 * Weight::kBytes;
  const std::size_t group_bytes = k * kColumn, vectors = groups * 16 / kLanes;
  const std::size_t tiles = divide_up(tokens, kFloatTokens);
  const auto tile_at = [&](std::size_t tile) { return tokens * tile / tiles; };
  const bool few = tokens <= kFloatFewTokens, in_place = tokens == 1;
  alignas(64) float panel[kFloatPanel];
  // weights of one tile pass once: its strips are as long as the panel allows
  const std::size_t strip = in_place ? k : tiles == 1 ? kFloatPanel / tokens / kFloatBlock * kFloatBlock : kFloatBlock;
  std::size_t at = 0;
  do {
    const std::size_t count = k - at < strip ? k - at : strip;
    const std::size_t padded = divide_up(count, kFloatChunk) * kFloatChunk;
    for (std::size_t tile = 0; !in_place && tile < tiles; ++tile) {
      const std::size_t t0 = tile_at(tile);
      fill_float_panel(source, token0 + t0, tile_at(tile + 1) - t0, at, count, panel + t0 * padded);
    }
    for (std::size_t vector = 0, together = 0; vector < vectors; vector += together) {
      together = few || vectors - vector == 1 ? 1 : 2;
      const std::size_t lane = vector * kLanes;
      FloatTile run{.weights = weights + lane / 16 * group_bytes + at * kColumn + lane % 16 * Weight::kBytes,
                    .second = kLanes == 16 ? group_bytes : kLanes * Weight::kBytes,
                    .k = count,
                    .panel = nullptr,
                    .out = nullptr,
                    .out_stride = out_stride,
                    .first = at == 0,
                    .fetching = 0,
                    .ahead = few ? kFetchAhead : divide_up(2 * kLanes, 16) * group_bytes};
      for (std::size_t tile = 0; tile < tiles; ++tile) {
        const std::size_t t0 = tile_at(tile), width = tile_at(tile + 1) - t0;
        run.panel = in_place ? reinterpret_cast<const float*>(source.row(token0)) : panel + t0 * padded;
        run.out = out + t0 * out_stride + lane;
        if (few || kLanes < 16)  // a line of a group holds several vectors: the first fetches for all
          run.fetching = lane % 16 == 0 && tile == 0 ? 1 : 0;
        else
          run.fetching = tiles == 1 ? 3 : tile < 2 ? 1U << tile : 0;
        const FloatTileFn multiply = few             ? float_tile_for<Weight, 1, kFloatFewTokens>(width)
                                     : together == 1 ? float_tile_for<Weight, 1, kFloatTokens>(width)
                                                     : float_tile_for<Weight, 2, kFloatTokens>(width);
        multiply(run);
      }
    }
    at += count;
  } while (at < k);
}

template <class Weight>
void matmul_float(const std::byte* weights, std::size_t k, std::size_t groups, const std::byte* x,
                  std::size_t x_row_bytes, const std::int32_t* row_map, std::size_t tokens, float* out,
                  std::size_t out_stride) {
  if (groups == 0) return;
  constexpr std::size_t kTogether = kFloatPanel / kFloatBlock;
  const PanelSource source{x, x_row_bytes, k, row_map};
  for (std::size_t t = 0; t < tokens; t += kTogether)
    matmul_float_tiles<Weight>(weights, k, groups, source, t, tokens - t < kTogether ? tokens - t : kTogether,
                               out + t * out_stride, out_stride);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
