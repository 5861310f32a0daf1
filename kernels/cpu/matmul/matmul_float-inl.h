#pragma once
// Matmul of F32, F16 and BF16 weights by f32 activations. Lanes are rows. A step is one vector of weights: one column
// of its rows, or two for BF16 dots (matmul_bf16-inl.h).
//
// Summation order, the same for any number of tokens: in each kFloatBlock columns the even steps are one chain of fma
// and the odd steps another; the two are added, and their sum is added to the blocks before. Two chains, because a
// single one waits for its own latency when one token streams its weights.
//
// Loops, outermost first: strips of k; vectors of rows; tiles of tokens. A tile is two vectors of rows by up to
// kFloatTokens tokens, so two loads of weights (which also convert them) and one broadcast per token feed two fma per
// token. Meanwhile the first tiles prefetch the weights of the next two vectors, which are too far away for the
// hardware prefetcher (Zen 5, a 1B model, 128 tokens, one thread: F16 87 tokens/s without and 99 with; F32 86 and 98).
// A few tokens take one vector at a time, so that the weights are one stream.
//
// x is copied once per strip into a panel, [steps/8][T][8] per tile, so that the inner loop has one pointer for x and
// constant offsets. A single token is its own panel if x is used as it is. Sums pass from strip to strip through `out`,
// which is f32 and rounds nothing.

#include "kernels/cpu/matmul/matmul_int-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

inline constexpr std::size_t kFloatChunk = 8;                 ///< steps of one token that lie together in the panel
inline constexpr std::size_t kFloatBlock = 256;               ///< columns: two groups of 16-bit weights take 16 KiB
inline constexpr std::size_t kFloatPanel = 96 * kFloatBlock;  ///< floats of a panel, which stays in L2

/// How weights of a type meet x: the base of the Load types. A step is one 32-bit word of the panel per token, and
/// kBytes of each row.
struct FloatColumns {
  static constexpr std::size_t kColumns = 1;  ///< columns of a step
  static constexpr bool kInPlace = true;      ///< a row of x can be used as a panel
  FORGE_INLINE static B multiply_add(B weights, float x, B sum) { return fma(weights, base_set1(x), sum); }
  /// Copies `count` columns, at most a chunk's, from x to the panel.
  FORGE_INLINE static void fill(const float* x, std::size_t count, float* panel) {
    std::memcpy(panel, x, count * sizeof(float));
  }
};
struct LoadF32 : FloatColumns {
  static constexpr std::size_t kBytes = 4;
  FORGE_INLINE static B load(const std::byte* p) { return base_load(reinterpret_cast<const float*>(p)); }
};
struct LoadF16 : FloatColumns {
  static constexpr std::size_t kBytes = 2;
  FORGE_INLINE static B load(const std::byte* p) { return base_load_f16(reinterpret_cast<const std::uint16_t*>(p)); }
};
struct LoadBf16 : FloatColumns {
  static constexpr std::size_t kBytes = 2;
  FORGE_INLINE static B load(const std::byte* p) { return base_load_bf16(reinterpret_cast<const std::uint16_t*>(p)); }
};

/// Tokens of a register tile: two chains for each of two vectors per token, two vectors of weights and one of x take 31
/// of 32 registers, or 15 of 16.
inline constexpr int kFloatTokens = kRegisters == 32 ? 7 : 3;
/// A few tokens take one vector at a time, or on NEON a whole group of four vectors (29 of 32 registers).
inline constexpr int kFloatFewTokens = 3, kFloatFewVectors = kRegisters == 32 && kLanes == 4 ? 4 : 1;

/// Some vectors of rows by T tokens over a strip. A strip is whole kFloatBlocks, except at the end of k.
struct FloatTile {
  const std::byte* weights;  ///< of the first vector, at the strip's first step
  std::size_t second;        ///< bytes from one vector's weights to the next vector's
  std::size_t steps;         ///< complete steps
  bool is_rest;              ///< an incomplete step follows: k is odd and a step has two columns
  const float* panel;
  float* out;
  std::size_t out_stride;
  bool first;         ///< out holds nothing yet
  unsigned fetching;  ///< bit v: prefetch `ahead` bytes past the weights of vector v
  std::size_t ahead;
};

/// The inner kernel. Each round of the outer loop is one kFloatBlock: the two chains start at 0, and their sum goes to
/// `out`.
template <class Weight, int V, int T>
void float_tile(const FloatTile& tile) {
  constexpr std::size_t kStep = 16 * Weight::kBytes, kBlock = kFloatBlock / Weight::kColumns;
  const std::byte* weights = tile.weights;
  const float* panel = tile.panel;
  B sums[2][V][T];
  const auto multiply = [&](const auto& load, std::size_t i) FORGE_INLINE_BODY {
    B w[V];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < V; ++v) w[v] = load(weights + v * tile.second + i * kStep);
#pragma GCC unroll 7
    for (std::size_t t = 0; t < T; ++t) {
      const float x = panel[t * kFloatChunk + i];
#pragma GCC unroll 4
      for (std::size_t v = 0; v < V; ++v) sums[i % 2][v][t] = Weight::multiply_add(w[v], x, sums[i % 2][v][t]);
    }
  };
  const auto step = [&](std::size_t i) FORGE_INLINE_BODY { multiply(Weight::load, i); };
  const auto fetch = [&](std::size_t i) FORGE_INLINE_BODY {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < V; ++v)
      if ((tile.fetching >> v & 1) != 0) __builtin_prefetch(weights + v * tile.second + tile.ahead + i * kStep, 0, 2);
  };
  bool first = tile.first;
  std::size_t left = tile.steps + (tile.is_rest ? 1 : 0);
  do {
#pragma GCC unroll 2
    for (auto& chain : sums)
#pragma GCC unroll 4
      for (auto& vector : chain)
#pragma GCC unroll 7
        for (B& sum : vector) sum = base_set1(0.0f);
    const bool ends = left <= kBlock;
    const std::size_t count = ends ? left : kBlock, whole = count - (ends && tile.is_rest ? 1 : 0);
    std::size_t at = 0;
    for (; at + kFloatChunk <= whole; at += kFloatChunk) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kFloatChunk; ++i) {
        if (i * kStep % 64 == 0) fetch(i);
        step(i);
      }
      weights += kFloatChunk * kStep;
      panel += kFloatChunk * T;
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kFloatChunk; ++i) {
      if (at + i < whole) step(i);
      if constexpr (Weight::kColumns > 1)
        if (at + i == whole && whole < count) multiply(Weight::load_rest, i);
    }
#pragma GCC unroll 4
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
/// float_tile<Weight, V, count>, 1 <= count <= T.
template <class Weight, int V, int T>
FORGE_INLINE FloatTileFn float_tile_for(std::size_t count) {
  if constexpr (T > 1)
    if (count < T) return float_tile_for<Weight, V, T - 1>(count);
  return float_tile<Weight, V, T>;
}

/// Copies columns [first, first + count) of `tokens` tokens into a panel.
template <class Weight>
FORGE_INLINE void fill_float_panel(const PanelSource& source, std::size_t first_token, std::size_t tokens,
                                   std::size_t first, std::size_t count, float* panel) {
  constexpr std::size_t kChunk = kFloatChunk * Weight::kColumns;
  for (std::size_t t = 0; t < tokens; ++t) {
    const float* row = reinterpret_cast<const float*>(source.row(first_token + t)) + first;
    float* to = panel + t * kFloatChunk;
    std::size_t at = 0;
    for (; at + kChunk <= count; at += kChunk, to += tokens * kFloatChunk) Weight::fill(row + at, kChunk, to);
    if (at < count) Weight::fill(row + at, count - at, to);
  }
}

/// At most kFloatPanel / kFloatBlock tokens.
template <class Weight>
void matmul_float_tiles(const std::byte* weights, std::size_t k, std::size_t groups, const PanelSource& source,
                        std::size_t token0, std::size_t tokens, float* out, std::size_t out_stride) {
  constexpr std::size_t kColumns = Weight::kColumns, kColumnBytes = 16 * Weight::kBytes / kColumns;
  const std::size_t group_bytes = k * kColumnBytes, vectors = groups * 16 / kLanes;
  const std::size_t tiles = divide_up(tokens, kFloatTokens);
  const auto tile_at = [&](std::size_t tile) { return tokens * tile / tiles; };
  const bool few = tokens <= kFloatFewTokens, in_place = tokens == 1 && Weight::kInPlace;
  alignas(64) float panel[kFloatPanel];
  // With one tile of tokens the weights are read once anyway, so strips are as long as the panel allows.
  const std::size_t strip = in_place     ? k
                            : tiles == 1 ? kFloatPanel * kColumns / tokens / kFloatBlock * kFloatBlock
                                         : kFloatBlock;
  std::size_t at = 0;
  do {
    const std::size_t count = k - at < strip ? k - at : strip;
    const std::size_t padded = divide_up(count, kFloatChunk * kColumns) * kFloatChunk;
    for (std::size_t tile = 0; !in_place && tile < tiles; ++tile) {
      const std::size_t t0 = tile_at(tile);
      fill_float_panel<Weight>(source, token0 + t0, tile_at(tile + 1) - t0, at, count, panel + t0 * padded);
    }
    for (std::size_t vector = 0, together = 0; vector < vectors; vector += together) {
      together = few ? kFloatFewVectors : vectors - vector == 1 ? 1 : 2;
      const std::size_t lane = vector * kLanes;
      FloatTile run{.weights = weights + lane / 16 * group_bytes + at * kColumnBytes + lane % 16 * Weight::kBytes,
                    .second = kLanes == 16 ? group_bytes : kLanes * Weight::kBytes,
                    .steps = count / kColumns,
                    .is_rest = count % kColumns != 0,
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
        if (few || kLanes < 16)  // a cache line holds several vectors; the first one prefetches for all
          run.fetching = lane % 16 == 0 && tile == 0 ? 1 : 0;
        else
          run.fetching = tiles == 1 ? 3 : tile < 2 ? 1U << tile : 0;
        const FloatTileFn multiply = few             ? float_tile_for<Weight, kFloatFewVectors, kFloatFewTokens>(width)
                                     : together == 1 ? float_tile_for<Weight, 1, kFloatTokens>(width)
                                                     : float_tile_for<Weight, 2, kFloatTokens>(width);
        multiply(run);
      }
    }
    at += count;
  } while (at < k);
}

/// The MatmulFn of a float type.
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
