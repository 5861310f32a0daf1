#pragma once
// Attention over chunks of the paged cache (attention.h says what is computed and why it is cut so).
// Up to kRowsTogether query rows share each load of K and V. A row's own operations never depend on its neighbours:
// positions that only some of the rows see are added row by row, and lanes outside a row's range are overwritten before
// anything looks at them, so neither stale memory nor a later token's infinity reaches a row that does not see it.

#include "kernels/cpu/simd-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

inline constexpr std::size_t kRowsTogether = kLanes == 16 ? 8 : kLanes == 8 ? 4 : 2;
inline constexpr std::size_t kScoreVectors = kLanes == 16 ? 2 : 1;  // of 16 positions, in registers at a time
inline constexpr std::size_t kChunkBlocks = kAttentionChunk / kKvBlockTokens;
/// Blocks between the one computed and the one fetched: a block takes less time than memory takes to answer.
inline constexpr std::size_t kBlocksAhead = 2;
inline constexpr std::size_t kAcc = 16;  // where acc starts in a partial result

/// How the cache's elements become floats. Those of Q8_0 are multiplied by their scales as they are loaded, so all that
/// follows is the same for both.
struct KvF16 {
  using Element = std::uint16_t;
  static constexpr bool kScaled = false;
  FORGE_INLINE static V load(const Element* p) { return M::load_f16(p); }
};
struct KvQ8 {
  using Element = std::int8_t;
  static constexpr bool kScaled = true;
  FORGE_INLINE static V load(const Element* p) { return M::load_i8(p); }
};

/// Rows that are computed together, and where the chunk's blocks lie. Positions are relative to the chunk.
struct RowsOfChunk {
  std::size_t head_dim;
  float scale, softcap;
  const std::byte* keys[kChunkBlocks];    // of this head
  const std::byte* values[kChunkBlocks];  // of this head
  const float* q[kRowsTogether];
  float* partial[kRowsTogether];
  std::size_t begin[kRowsTogether], end[kRowsTogether];  // begin < end
};

/// `next`: what is read soon after this block, fetched into L2 meanwhile (blocks lie anywhere in the pool, and each is
/// a page or so, which the hardware's prefetcher does not leave). scores[r][0..32) = softcapped scale * q_r . K of one
/// block; sums run over d in order.
template <class Kv, std::size_t R>
FORGE_INLINE void block_scores(const RowsOfChunk& rows, const std::byte* block, const std::byte* next,
                               const float* panel, float* scores) {
  constexpr std::size_t kStep = 16 * kScoreVectors, kRowBytes = kKvBlockTokens * sizeof(typename Kv::Element);
  const auto* keys = reinterpret_cast<const typename Kv::Element*>(block);
  const auto* scales = reinterpret_cast<const std::uint16_t*>(block + kRowBytes * rows.head_dim);
  for (std::size_t lane = 0; lane < kKvBlockTokens; lane += kStep) {
    V sums[R][kScoreVectors], scale[kScoreVectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kScoreVectors; ++v) scale[v] = zero();
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kScoreVectors; ++v) sums[r][v] = zero();
    for (std::size_t d = 0; d < rows.head_dim; ++d) {
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
        const V q = M::set1(panel[d * R + r]);
#pragma GCC unroll 2
        for (std::size_t v = 0; v < kScoreVectors; ++v) sums[r][v] = fma(q, key[v], sums[r][v]);
      }
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kScoreVectors; ++v) {
        V score = mul(sums[r][v], M::set1(rows.scale));
        if (rows.softcap != 0) score = mul(tanh(div(score, M::set1(rows.softcap))), M::set1(rows.softcap));
        M::store(score, scores + r * kAttentionChunk + lane + 16 * v);
      }
  }
}

/// Scores [begin, end) of a row become exp(score - m); m and l go to the partial result.
FORGE_INLINE void softmax_of_chunk(float* scores, std::size_t begin, std::size_t end, float* partial) {
  const std::size_t first = begin / 16 * 16, last = (end + 15) / 16 * 16;
  for (std::size_t i = first; i < begin; ++i) scores[i] = -__builtin_inff();
  for (std::size_t i = end; i < last; ++i) scores[i] = -__builtin_inff();
  V largest = M::load(scores + first);
  for (std::size_t i = first + 16; i < last; i += 16) largest = vmax(largest, M::load(scores + i));
  const float m = reduce_max(largest);
  V sum = zero();
  for (std::size_t i = first; i < last; i += 16) {
    const V p = exp(sub(M::load(scores + i), M::set1(m)));
    sum = add(sum, p);
    M::store(p, scores + i);
  }
  partial[0] = m;
  partial[1] = reduce_add(sum);
}

/// The scales of all tokens of a block, for the N vectors of columns from `at` on.
template <std::size_t N>
FORGE_INLINE void load_value_scales(const std::byte* block, std::size_t head_dim, std::size_t at,
                                    float (*scales)[kKvBlockTokens]) {
  const auto* from =
      reinterpret_cast<const std::uint16_t*>(block + kKvBlockTokens * head_dim) + at / kKvScaleColumns * kKvBlockTokens;
#pragma GCC unroll 2
  for (std::size_t s = 0; s < (N + 1) / 2; ++s)
    for (std::size_t i = 0; i < kKvBlockTokens; i += 16)
      M::store(M::load_f16(from + s * kKvBlockTokens + i), scales[s] + i);
}

/// acc_r[at .. at + 16 N) += p_r[i] * V[i] for positions i in [begin, end), in order. count: real columns, for N = 1.
template <class Kv, std::size_t R, std::size_t N>
FORGE_INLINE void add_values_strip(const RowsOfChunk& rows, std::size_t row0, const float* scores, std::size_t begin,
                                   std::size_t end, std::size_t at, std::size_t count) {
  using Element = typename Kv::Element;
  V sums[R][N];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (std::size_t n = 0; n < N; ++n) sums[r][n] = M::load(rows.partial[row0 + r] + kAcc + at + 16 * n);
  for (std::size_t i = begin; i < end;) {
    const std::size_t block = i / kKvBlockTokens,
                      stop = (block + 1) * kKvBlockTokens < end ? (block + 1) * kKvBlockTokens : end;
    const std::size_t first = (i % kKvBlockTokens) * rows.head_dim + at;
    const auto* value = reinterpret_cast<const Element*>(rows.values[block]) + first;
    const std::size_t ahead = block + kBlocksAhead;  // its strip is fetched meanwhile, row for row
    const auto* next =
        ahead * kKvBlockTokens < end ? reinterpret_cast<const Element*>(rows.values[ahead]) + first : value;
    alignas(64) float scales[2][kKvBlockTokens];
    if constexpr (Kv::kScaled) load_value_scales<N>(rows.values[block], rows.head_dim, at, scales);
    for (; i < stop; ++i, value += rows.head_dim, next += rows.head_dim) {
#pragma GCC unroll 2
      for (std::size_t line = 0; line < 16 * N; line += 64 / sizeof(Element)) __builtin_prefetch(next + line, 0, 2);
      V v[N];
#pragma GCC unroll 4
      for (std::size_t n = 0; n < N; ++n) {
        if constexpr (Kv::kScaled)
          v[n] = mul(Kv::load(value + 16 * n), M::set1(scales[n / 2][i % kKvBlockTokens]));
        else
          v[n] = N == 1 && count < 16 ? load_f16_n(value, count) : Kv::load(value + 16 * n);
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

/// The same over all columns; scores of row row0 first.
template <class Kv, std::size_t R>
void add_values(const RowsOfChunk& rows, std::size_t row0, const float* scores, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  constexpr std::size_t kWide = kLanes == 16 ? (R <= 4 ? 4 : 2) : kLanes == 8 && R <= 2 ? 2 : 1;
  std::size_t at = 0;
  for (; at + 16 * kWide <= rows.head_dim; at += 16 * kWide)
    add_values_strip<Kv, R, kWide>(rows, row0, scores, begin, end, at, 16);
  for (; at < rows.head_dim; at += 16)
    add_values_strip<Kv, R, 1>(rows, row0, scores, begin, end, at, rows.head_dim - at);
}

template <class Kv, std::size_t R>
void compute_rows(const RowsOfChunk& rows) {
  alignas(64) float panel[kHeadDimMax * R];
  alignas(64) float scores[R * kAttentionChunk];
  std::size_t first = kAttentionChunk, last = 0, all_begin = 0, all_end = kAttentionChunk;
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t d = 0; d < rows.head_dim; ++d) panel[d * R + r] = rows.q[r][d];
    for (std::size_t i = kAcc; i < attention_partial_floats(rows.head_dim); i += 16)
      M::store(zero(), rows.partial[r] + i);
    first = rows.begin[r] < first ? rows.begin[r] : first;
    last = rows.end[r] > last ? rows.end[r] : last;
    all_begin = rows.begin[r] > all_begin ? rows.begin[r] : all_begin;
    all_end = rows.end[r] < all_end ? rows.end[r] : all_end;
  }
  for (std::size_t block = first / kKvBlockTokens; block * kKvBlockTokens < last; ++block) {
    const std::size_t end = (last + kKvBlockTokens - 1) / kKvBlockTokens, ahead = block + kBlocksAhead;
    std::size_t value = first / kKvBlockTokens + ahead - end;  // behind the keys, the values
    value = value < end ? value : end - 1;
    const std::byte* next = ahead < end ? rows.keys[ahead] : rows.values[value];
    block_scores<Kv, R>(rows, rows.keys[block], next, panel, scores + block * kKvBlockTokens);
  }
  for (std::size_t r = 0; r < R; ++r)
    softmax_of_chunk(scores + r * kAttentionChunk, rows.begin[r], rows.end[r], rows.partial[r]);
  if (R == 1 || all_begin >= all_end) all_begin = all_end = kAttentionChunk;  // nothing in common
  for (std::size_t r = 0; r < R; ++r) {
    const std::size_t stop = rows.end[r] < all_begin ? rows.end[r] : all_begin;
    add_values<Kv, 1>(rows, r, scores + r * kAttentionChunk, rows.begin[r], stop);
  }
  add_values<Kv, R>(rows, 0, scores, all_begin, all_end);
  for (std::size_t r = 0; r < R; ++r) {
    const std::size_t start = rows.begin[r] > all_end ? rows.begin[r] : all_end;
    add_values<Kv, 1>(rows, r, scores + r * kAttentionChunk, start, rows.end[r]);
  }
}

template <class Kv, std::size_t R>
FORGE_INLINE void compute_rows_for(const RowsOfChunk& rows, std::size_t count) {
  if constexpr (R > 1)
    if (count < R) return compute_rows_for<Kv, R - 1>(rows, count);
  compute_rows<Kv, R>(rows);
}

/// What a query at `position` sees of the positions [start, start + kAttentionChunk): [begin, end) relative to start.
FORGE_INLINE bool seen_of_chunk(const AttentionParams& params, std::int32_t position, std::size_t start,
                                std::size_t* begin, std::size_t* end) {
  const auto at = static_cast<std::int64_t>(position), from = static_cast<std::int64_t>(start);
  std::int64_t stop = at + 1, length = static_cast<std::int64_t>(params.kv_length);
  std::int64_t first = params.window > 0 ? at - params.window + 1 : 0;
  stop = stop < length ? stop : length;
  stop = stop < from + static_cast<std::int64_t>(kAttentionChunk) ? stop
                                                                  : from + static_cast<std::int64_t>(kAttentionChunk);
  first = first > from ? first : from;
  if (first >= stop) return false;
  *begin = static_cast<std::size_t>(first - from);
  *end = static_cast<std::size_t>(stop - from);
  return true;
}

template <class Kv>
void attention_chunk_of(const AttentionParams& params, const AttentionQuery& query, std::size_t chunk,
                        float* partials) {
  const std::size_t start = chunk * kAttentionChunk, head_bytes = kv_head_bytes(params.kv_type, params.head_dim);
  RowsOfChunk rows;
  rows.head_dim = params.head_dim;
  rows.scale = params.scale;
  rows.softcap = params.softcap;
  for (std::size_t b = 0; b < kChunkBlocks; ++b) {
    const std::size_t position = start + b * kKvBlockTokens;
    rows.keys[b] = rows.values[b] = nullptr;
    // blocks wholly before the window may have been given back: their entries are read but not followed
    if (position >= params.kv_length) continue;
    const auto number = static_cast<std::ptrdiff_t>(params.block_table[position / kKvBlockTokens]);
    const std::byte* block = params.pool + number * static_cast<std::ptrdiff_t>(params.block_stride);
    rows.keys[b] = block + query.kv_head * head_bytes;
    rows.values[b] = rows.keys[b] + params.kv_heads * head_bytes;
  }
  std::size_t count = 0;
  for (std::size_t row = 0; row < query.tokens * params.group; ++row) {
    const std::size_t t = row / params.group, g = row % params.group;
    float* partial = partials + row * attention_partial_floats(params.head_dim);
    if (!seen_of_chunk(params, query.positions[t], start, &rows.begin[count], &rows.end[count])) {
      std::memset(partial, 0, attention_partial_floats(params.head_dim) * sizeof(float));
      partial[0] = -__builtin_inff();
      continue;
    }
    rows.q[count] = query.q + t * query.token_stride + g * query.head_stride;
    rows.partial[count] = partial;
    if (++count == kRowsTogether) {
      compute_rows<Kv, kRowsTogether>(rows);
      count = 0;
    }
  }
  if (count != 0) compute_rows_for<Kv, kRowsTogether>(rows, count);
}
inline void attention_chunk(const AttentionParams& params, const AttentionQuery& query, std::size_t chunk,
                            float* partials) {
  if (params.kv_type == DType::kQ8_0)
    attention_chunk_of<KvQ8>(params, query, chunk, partials);
  else
    attention_chunk_of<KvF16>(params, query, chunk, partials);
}

/// state (a partial result) takes in the next chunk's. The only place where chunks meet.
FORGE_INLINE void merge_partial(float* state, const float* next, std::size_t floats) {
  if (next[1] == 0) return;
  if (state[1] == 0) {
    std::memcpy(state, next, floats * sizeof(float));
    return;
  }
  const float m = state[0] > next[0] ? state[0] : next[0];
  const float a = exp(state[0] - m), b = exp(next[0] - m);
  state[1] = state[1] * a + next[1] * b;
  state[0] = m;
  const V va = M::set1(a), vb = M::set1(b);
  for (std::size_t i = kAcc; i < floats; i += 16)
    M::store(add(mul(M::load(state + i), va), mul(M::load(next + i), vb)), state + i);
}

/// acc / l, with the sink's share of l.
FORGE_INLINE void finish_row(const float* state, const float* sink, std::size_t head_dim, float* out) {
  float l = state[1], factor = 1;
  if (l == 0) {
    std::memset(out, 0, head_dim * sizeof(float));
    return;
  }
  if (sink) {
    const float m = state[0] > *sink ? state[0] : *sink;
    factor = exp(state[0] - m);
    l = l * factor + exp(*sink - m);
  }
  const V share = M::set1(factor / l);
  for (std::size_t i = 0; i < head_dim; i += 16)
    store_some(mul(M::load(state + kAcc + i), share), out + i, head_dim - i);
}

inline void attention_merge(const AttentionParams& params, const AttentionQuery& query, const float* partials,
                            std::size_t chunks, std::size_t chunk_stride, float* out, std::size_t out_token_stride,
                            std::size_t out_head_stride) {
  const std::size_t floats = attention_partial_floats(params.head_dim);
  alignas(64) float state[kAcc + kHeadDimMax];
  for (std::size_t row = 0; row < query.tokens * params.group; ++row) {
    const std::size_t t = row / params.group, g = row % params.group;
    state[1] = 0;
    for (std::size_t c = 0; c < chunks; ++c) merge_partial(state, partials + c * chunk_stride + row * floats, floats);
    finish_row(state, query.sinks ? query.sinks + g : nullptr, params.head_dim,
               out + t * out_token_stride + g * out_head_stride);
  }
}

inline void attention_tile(const AttentionParams& params, const AttentionQuery& query, float* scratch, float* out,
                           std::size_t out_token_stride, std::size_t out_head_stride) {
  const std::size_t floats = attention_partial_floats(params.head_dim), rows = query.tokens * params.group;
  const std::size_t cached = attention_chunks(params.kv_length);
  std::size_t first = cached, last = 0;
  for (std::size_t t = 0; t < query.tokens; ++t) {
    const std::int32_t position = query.positions[t];
    if (position < 0) continue;
    const std::size_t begin = attention_first_chunk(position, params.window);
    const std::size_t end = static_cast<std::size_t>(position) / kAttentionChunk + 1;
    first = begin < first ? begin : first;
    last = end > last ? end : last;
  }
  last = last < cached ? last : cached;
  float* next = scratch + rows * floats;
  for (std::size_t row = 0; row < rows; ++row) scratch[row * floats + 1] = 0;
  for (std::size_t c = first; c < last; ++c) {
    attention_chunk(params, query, c, next);
    for (std::size_t row = 0; row < rows; ++row) merge_partial(scratch + row * floats, next + row * floats, floats);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t t = row / params.group, g = row % params.group;
    finish_row(scratch + row * floats, query.sinks ? query.sinks + g : nullptr, params.head_dim,
               out + t * out_token_stride + g * out_head_stride);
  }
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
