#pragma once
// The loops of attention over one chunk (attention.h defines what is computed). Up to kRowsTogether query rows share
// each load of K and V. A row's own operations never depend on its neighbours: positions that only some of the rows see
// are added row by row, and scores outside a row's range are overwritten before they are used. So neither stale memory
// nor an infinity of a later token can reach a row that does not see it. Many rows share more work
// (attention_groups-inl.h).

#include "kernels/cpu/simd-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Query rows computed together, and vectors of 16 positions per row: the sums must fit the registers.
inline constexpr std::size_t kRowsTogether = kVectorsHeld == 32 ? 8 : kVectorsHeld == 8 ? 4 : 2;
inline constexpr std::size_t kScoreVectors = kVectorsHeld == 32 ? 2 : 1;
inline constexpr std::size_t kChunkBlocks = kAttentionChunk / kKvBlockTokens;
/// Prefetch distance in blocks: computing one block takes less time than a memory access.
inline constexpr std::size_t kBlocksAhead = 2;
inline constexpr std::size_t kAcc = 16;  // start of acc in a partial result

FORGE_INLINE std::size_t min_of(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}
FORGE_INLINE std::size_t max_of(std::size_t a, std::size_t b) {
  return a > b ? a : b;
}

/// Element types of the cache and how they become floats. kScaled: elements are multiplied by their scales while they
/// are loaded, so everything after is the same for all types. kInCache: the data is in the KV cache and worth
/// prefetching.
struct KvF16 {
  using Element = std::uint16_t;
  static constexpr bool kScaled = false, kInCache = true;
  FORGE_INLINE static V load(const Element* p) { return M::load_f16(p); }
  FORGE_INLINE static V load_n(const Element* p, std::size_t count) { return load_f16_n(p, count); }
};
struct KvQ8 {
  using Element = std::int8_t;
  static constexpr bool kScaled = true, kInCache = true;
  FORGE_INLINE static V load(const Element* p) { return M::load_i8(p); }
};
/// A block that was converted to floats before, of either type.
struct KvFloats {
  using Element = float;
  static constexpr bool kScaled = false, kInCache = false;
  FORGE_INLINE static V load(const Element* p) { return M::load(p); }
  FORGE_INLINE static V load_n(const Element* p, std::size_t count) {
    return cpu::FORGE_CPU_NAMESPACE::load_n(p, count);
  }
};

/// One chunk: the addresses of its blocks for this KV head, and the score parameters.
struct Chunk {
  std::size_t head_dim, value_dim;
  std::size_t value_row;  ///< elements from one token's V to the next token's
  float scale, softcap;
  const std::byte* keys[kChunkBlocks];    ///< this head's K in each block
  const std::byte* values[kChunkBlocks];  ///< this head's V in each block
};
/// The positions that a query row sees of a chunk with sparse attention (AttentionQuery::selected): those of `count`
/// numbers. numbers nullptr: all. start: the chunk's first position.
struct Selected {
  const std::int32_t* numbers;
  std::size_t count, block, start;
};
/// The part of position block `number` that lies in [begin, end) of the chunk; empty if the two are equal.
FORGE_INLINE void selected_range(const Selected& selected, std::int32_t number, std::size_t* begin, std::size_t* end) {
  const std::size_t from = static_cast<std::uint32_t>(number) * selected.block, to = from + selected.block;
  const std::size_t first = from > selected.start ? from - selected.start : 0;
  const std::size_t last = to > selected.start ? to - selected.start : 0;
  *begin = first > *begin ? first : *begin;
  *end = last < *end ? last : *end;
  if (*begin > *end) *begin = *end;
}
/// Query rows that are computed together, their partial results, and the positions that each sees (relative to the
/// chunk).
struct Rows {
  const float* q[kRowsTogether];
  float* partial[kRowsTogether];
  std::size_t begin[kRowsTogether], end[kRowsTogether];  // begin < end
  float slope[kRowsTogether], at[kRowsTogether];  ///< ALiBi: slopes, and the rows' own positions relative to the chunk
  Selected selected[kRowsTogether];
};

/// scores[r][0..32) = scale * q_r . K for the 32 positions of one block; each dot is one chain of fma over d in order.
/// `next` is the block that will be read soon and is prefetched into L2 meanwhile: blocks lie anywhere in the pool,
/// each is about a page long, and the hardware prefetcher does not cross pages.
template <class Kv, std::size_t R>
FORGE_INLINE void block_scores(const Chunk& chunk, const Rows& rows, const std::byte* block, const std::byte* next,
                               float* scores) {
  constexpr std::size_t kStep = 16 * kScoreVectors, kRowBytes = kKvBlockTokens * sizeof(typename Kv::Element);
  const auto* keys = reinterpret_cast<const typename Kv::Element*>(block);
  const auto* scales = reinterpret_cast<const std::uint16_t*>(block + kRowBytes * chunk.head_dim);
  for (std::size_t lane = 0; lane < kKvBlockTokens; lane += kStep) {
    V sums[R][kScoreVectors], scale[kScoreVectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kScoreVectors; ++v) scale[v] = zero();
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kScoreVectors; ++v) sums[r][v] = zero();
    for (std::size_t d = 0; d < chunk.head_dim; ++d) {
      if constexpr (Kv::kInCache)
        if (lane == 0 && d * kRowBytes % 64 == 0) __builtin_prefetch(next + d * kRowBytes, 0, 2);
      V key[kScoreVectors];
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kScoreVectors; ++v) {
        key[v] = Kv::load(keys + d * kKvBlockTokens + lane + 16 * v);
        if constexpr (Kv::kScaled) {
          if (d % kKvScaleColumns == 0) scale[v] = M::load_f16(scales + d + lane + 16 * v);
          key[v] = mul(key[v], scale[v]);
        }
      }
#pragma GCC unroll 8
      for (std::size_t r = 0; r < R; ++r) {
        const V q = M::set1(rows.q[r][d]);
#pragma GCC unroll 2
        for (std::size_t v = 0; v < kScoreVectors; ++v) sums[r][v] = fma(q, key[v], sums[r][v]);
      }
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kScoreVectors; ++v)
        M::store(mul(sums[r][v], M::set1(chunk.scale)), scores + r * kAttentionChunk + lane + 16 * v);
  }
}

/// Replaces the scores [begin, end) of positions that are not selected with -infinity.
inline void mask_unselected(const Selected& selected, std::size_t begin, std::size_t end, float* scores) {
  std::size_t next = begin;  // everything before it is done
  for (std::size_t n = 0; n < selected.count; ++n) {
    std::size_t from = next, to = end;
    selected_range(selected, selected.numbers[n], &from, &to);
    if (from == to) continue;
    for (; next < from; ++next) scores[next] = -__builtin_inff();
    next = to;
  }
  for (; next < end; ++next) scores[next] = -__builtin_inff();
}

/// Applies the soft-cap and ALiBi's bias, masks what is not selected and replaces scores [begin, end) of row r with
/// exp(score - m). Scores outside the range become 0 up to the vector's border. m and l are written to the partial
/// result.
FORGE_INLINE void softmax_of_chunk(float softcap, float* scores, const Rows& rows, std::size_t r) {
  const std::size_t begin = rows.begin[r], end = rows.end[r];
  float* const partial = rows.partial[r];
  const std::size_t first = begin / 16 * 16, last = (end + 15) / 16 * 16;
  if (softcap != 0)
    for (std::size_t i = first; i < last; i += 16)
      M::store(mul(tanh(div(M::load(scores + i), M::set1(softcap))), M::set1(softcap)), scores + i);
  if (rows.slope[r] != 0) {
    constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (std::size_t i = first; i < last; i += 16) {
      const V distance = vabs(sub(M::set1(rows.at[r] - static_cast<float>(i)), M::load(kLaneNumbers)));
      M::store(sub(M::load(scores + i), mul(M::set1(rows.slope[r]), distance)), scores + i);
    }
  }
  if (rows.selected[r].numbers != nullptr) mask_unselected(rows.selected[r], begin, end, scores);
  for (std::size_t i = first; i < begin; ++i) scores[i] = -__builtin_inff();
  for (std::size_t i = end; i < last; ++i) scores[i] = -__builtin_inff();
  V largest = M::load(scores + first);
  for (std::size_t i = first + 16; i < last; i += 16) largest = vmax(largest, M::load(scores + i));
  const float m = reduce_max(largest);
  V sum = zero();
  for (std::size_t i = first; i < last; i += 16) {
    const V p = exp_of_negative(sub(M::load(scores + i), M::set1(m)));
    sum = add(sum, p);
    M::store(p, scores + i);
  }
  partial[0] = m;
  partial[1] = reduce_add(sum);
}

/// Loads the scales of all 32 tokens of a block [32][width] for the N vectors of columns from `at` on.
template <std::size_t N>
FORGE_INLINE void load_row_scales(const std::byte* block, std::size_t width, std::size_t at,
                                  float (*scales)[kKvBlockTokens]) {
  const auto* from =
      reinterpret_cast<const std::uint16_t*>(block + kKvBlockTokens * width) + at / kKvScaleColumns * kKvBlockTokens;
#pragma GCC unroll 2
  for (std::size_t s = 0; s < (N + 1) / 2; ++s)
    for (std::size_t i = 0; i < kKvBlockTokens; i += 16)
      M::store(M::load_f16(from + s * kKvBlockTokens + i), scales[s] + i);
}

/// acc_r[at .. at + 16 N) += p_r[i] * V[i] for positions i in [begin, end), in order. count: columns that exist, if N =
/// 1.
template <class Kv, std::size_t R, std::size_t N>
FORGE_INLINE void add_values_strip(const Chunk& chunk, const Rows& rows, std::size_t row0, const float* scores,
                                   std::size_t begin, std::size_t end, std::size_t at, std::size_t count) {
  using Element = typename Kv::Element;
  V sums[R][N];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) sums[r][n] = M::load(rows.partial[row0 + r] + kAcc + at + 16 * n);
  for (std::size_t i = begin; i < end;) {
    const std::size_t block = i / kKvBlockTokens, stop = min_of((block + 1) * kKvBlockTokens, end);
    const std::size_t first = (i % kKvBlockTokens) * chunk.value_row + at;
    const auto* value = reinterpret_cast<const Element*>(chunk.values[block]) + first;
    const std::size_t ahead = block + kBlocksAhead;  // the strip of this block is prefetched row by row
    const auto* next =
        ahead * kKvBlockTokens < end ? reinterpret_cast<const Element*>(chunk.values[ahead]) + first : value;
    alignas(64) float scales[2][kKvBlockTokens];
    if constexpr (Kv::kScaled) load_row_scales<N>(chunk.values[block], chunk.value_row, at, scales);
    for (; i < stop; ++i, value += chunk.value_row, next += chunk.value_row) {
#pragma GCC unroll 2
      for (std::size_t line = 0; Kv::kInCache && line < 16 * N; line += 64 / sizeof(Element))
        __builtin_prefetch(next + line, 0, 2);
      V v[N];
#pragma GCC unroll 4
      for (std::size_t n = 0; n < N; ++n) {
        if constexpr (Kv::kScaled)
          v[n] = mul(Kv::load(value + 16 * n), M::set1(scales[n / 2][i % kKvBlockTokens]));
        else
          v[n] = N == 1 && count < 16 ? Kv::load_n(value, count) : Kv::load(value + 16 * n);
      }
#pragma GCC unroll 8
      for (std::size_t r = 0; r < R; ++r) {
        const V p = M::set1(scores[r * kAttentionChunk + i]);
#pragma GCC unroll 4
        for (std::size_t n = 0; n < N; ++n) sums[r][n] = fma(p, v[n], sums[r][n]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) M::store(sums[r][n], rows.partial[row0 + r] + kAcc + at + 16 * n);
}

/// The same over all columns of V. `scores` points at row row0.
template <class Kv, std::size_t R>
void add_values(const Chunk& chunk, const Rows& rows, std::size_t row0, const float* scores, std::size_t begin,
                std::size_t end) {
  if (begin >= end) return;
  constexpr std::size_t kWide = kVectorsHeld == 32 ? (R <= 4 ? 4 : 2) : kVectorsHeld == 8 && R <= 2 ? 2 : 1;
  std::size_t at = 0;
  for (; at + 16 * kWide <= chunk.value_dim; at += 16 * kWide)
    add_values_strip<Kv, R, kWide>(chunk, rows, row0, scores, begin, end, at, 16);
  for (; at < chunk.value_dim; at += 16)
    add_values_strip<Kv, R, 1>(chunk, rows, row0, scores, begin, end, at, chunk.value_dim - at);
}

/// The positions of the chunk that a group of rows sees.
struct SeenRange {
  std::size_t first = kAttentionChunk, last = 0;  ///< [first, last): seen by at least one row
  std::size_t begin = 0, end = kAttentionChunk;   ///< [begin, end): seen by all rows; both kAttentionChunk if none
};
template <std::size_t R>
FORGE_INLINE SeenRange seen_range(const Rows& rows) {
  SeenRange seen;
  for (std::size_t r = 0; r < R; ++r) {
    seen.first = min_of(seen.first, rows.begin[r]);
    seen.last = max_of(seen.last, rows.end[r]);
    seen.begin = max_of(seen.begin, rows.begin[r]);
    seen.end = min_of(seen.end, rows.end[r]);
  }
  if (R == 1 || seen.begin >= seen.end) seen.begin = seen.end = kAttentionChunk;
  return seen;
}

/// Adds the values of positions [from, to), for each row in ascending order: first the positions before the common
/// range row by row, then the common range for all rows at once, then the rest row by row.
template <class Kv, std::size_t R>
FORGE_INLINE void add_seen_values(const Chunk& chunk, const Rows& rows, const SeenRange& seen, const float* scores,
                                  std::size_t from, std::size_t to) {
  const bool all_see = seen.begin <= from && to <= seen.end;
  if (!all_see)
    for (std::size_t r = 0; r < R; ++r)
      add_values<Kv, 1>(chunk, rows, r, scores + r * kAttentionChunk, max_of(rows.begin[r], from),
                        min_of(min_of(rows.end[r], seen.begin), to));
  add_values<Kv, R>(chunk, rows, 0, scores, max_of(seen.begin, from), min_of(seen.end, to));
  if (!all_see)
    for (std::size_t r = 0; r < R; ++r)
      add_values<Kv, 1>(chunk, rows, r, scores + r * kAttentionChunk, max_of(max_of(rows.begin[r], seen.end), from),
                        min_of(rows.end[r], to));
}

template <std::size_t R>
FORGE_INLINE void clear_partials(const Rows& rows, std::size_t value_dim) {
  for (std::size_t r = 0; r < R; ++r)
    for (std::size_t i = kAcc; i < attention_partial_floats(value_dim); i += 16) M::store(zero(), rows.partial[r] + i);
}

/// The block to prefetch while key block `block` of [begin, end) is computed: kBlocksAhead keys on, and after the last
/// keys the first values.
FORGE_INLINE const std::byte* block_ahead(const Chunk& chunk, std::size_t block, std::size_t begin, std::size_t end) {
  const std::size_t ahead = block + kBlocksAhead;
  return ahead < end ? chunk.keys[ahead] : chunk.values[min_of(begin + ahead - end, end - 1)];
}

/// The partial results of R rows for one chunk.
template <class Kv, std::size_t R>
void compute_rows(const Chunk& chunk, const Rows& rows) {
  alignas(64) float scores[R * kAttentionChunk];
  const SeenRange seen = seen_range<R>(rows);
  clear_partials<R>(rows, chunk.value_dim);
  const std::size_t begin = seen.first / kKvBlockTokens, end = (seen.last + kKvBlockTokens - 1) / kKvBlockTokens;
  for (std::size_t block = begin; block < end; ++block)
    block_scores<Kv, R>(chunk, rows, chunk.keys[block], block_ahead(chunk, block, begin, end),
                        scores + block * kKvBlockTokens);
  for (std::size_t r = 0; r < R; ++r) softmax_of_chunk(chunk.softcap, scores + r * kAttentionChunk, rows, r);
  add_seen_values<Kv, R>(chunk, rows, seen, scores, 0, kAttentionChunk);
}

/// Calls f.template operator()<count>() for 1 <= count <= R.
template <std::size_t R, class F>
FORGE_INLINE void for_count(std::size_t count, F f) {
  if constexpr (R > 1)
    if (count < R) return for_count<R - 1>(count, f);
  f.template operator()<R>();
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
