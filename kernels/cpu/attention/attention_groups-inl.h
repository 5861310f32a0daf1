#pragma once
// Attention of many query rows over one chunk: each block of the cache is converted to floats once for all rows, into a
// buffer that stays in the CPU's caches. Layers whose keys and values share a row (MLA) always use this path.

#include "kernels/cpu/attention/attention_rows-inl.h"
#include "kernels/cpu/reduce-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Converts the keys of a block to out[d][32] and prefetches `next` meanwhile.
template <class Kv>
FORGE_INLINE void keys_to_floats(const std::byte* block, const std::byte* next, std::size_t head_dim, float* out) {
  constexpr std::size_t kRowBytes = kKvBlockTokens * sizeof(typename Kv::Element);
  const auto* keys = reinterpret_cast<const typename Kv::Element*>(block);
  const auto* scales = reinterpret_cast<const std::uint16_t*>(block + kRowBytes * head_dim);
  V scale[2] = {zero(), zero()};
  for (std::size_t d = 0; d < head_dim; ++d) {
    if (d * kRowBytes % 64 == 0) __builtin_prefetch(next + d * kRowBytes, 0, 2);
#pragma GCC unroll 2
    for (std::size_t v = 0; v < 2; ++v) {
      V key = Kv::load(keys + d * kKvBlockTokens + 16 * v);
      if constexpr (Kv::kScaled) {
        if (d % kKvScaleColumns == 0) scale[v] = M::load_f16(scales + d + 16 * v);
        key = mul(key, scale[v]);
      }
      M::store(key, out + d * kKvBlockTokens + 16 * v);
    }
  }
}

/// Converts the rows of a block to out[32][width] and prefetches `next` meanwhile.
template <class Kv>
FORGE_INLINE void rows_to_floats(const std::byte* block, const std::byte* next, std::size_t width, float* out) {
  using Element = typename Kv::Element;
  constexpr std::size_t kLine = 64 / sizeof(Element);
  const auto* values = reinterpret_cast<const Element*>(block);
  const auto* ahead = reinterpret_cast<const Element*>(next);
  if constexpr (Kv::kScaled) {
    alignas(64) float scales[1][kKvBlockTokens];
    for (std::size_t at = 0; at < width; at += kKvScaleColumns) {
      load_row_scales<1>(block, width, at, scales);
      for (std::size_t i = 0, from = at; i < kKvBlockTokens; ++i, from += width) {
        if (at % kLine == 0) __builtin_prefetch(ahead + from, 0, 2);
        const V scale = M::set1(scales[0][i]);
        M::store(mul(Kv::load(values + from), scale), out + from);
        M::store(mul(Kv::load(values + from + 16), scale), out + from + 16);
      }
    }
  } else {
    for (std::size_t at = 0; at < kKvBlockTokens * width; at += kLine) {
      __builtin_prefetch(ahead + at, 0, 2);
#pragma GCC unroll 4
      for (std::size_t i = at; i < at + kLine; i += 16) M::store(Kv::load(values + i), out + i);
    }
  }
}

/// Register tile of row_scores: as many tokens by as many queries; the sums, keys and q must fit the registers.
inline constexpr std::size_t kScoreTokens = kVectorsHeld == 32 ? 4 : kVectorsHeld == 8 ? 2 : 1;
inline constexpr std::size_t kScoreQueries = kScoreTokens;

/// scores[r][t] = scale * q_r . k_t for Count queries from row0 on and kScoreTokens tokens, whose keys are rows of
/// `dim` floats. Products are summed in 16 lanes over the columns, then the lanes by halves.
template <std::size_t Count>
FORGE_INLINE void row_scores(const Rows& rows, std::size_t row0, const float* keys, std::size_t dim, float scale,
                             float* scores) {
  V sums[Count * kScoreTokens];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < Count * kScoreTokens; ++i) sums[i] = zero();
  const auto add_columns = [&](std::size_t at, auto load) FORGE_INLINE_BODY {
    V key[kScoreTokens];
#pragma GCC unroll 4
    for (std::size_t t = 0; t < kScoreTokens; ++t) key[t] = load(keys + t * dim + at);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < Count; ++r) {
      const V q = load(rows.q[row0 + r] + at);
#pragma GCC unroll 4
      for (std::size_t t = 0; t < kScoreTokens; ++t)
        sums[r * kScoreTokens + t] = fma(q, key[t], sums[r * kScoreTokens + t]);
    }
  };
  std::size_t at = 0;
  for (; at + 16 <= dim; at += 16) add_columns(at, [](const float* p) FORGE_INLINE_BODY { return M::load(p); });
  if (at < dim) add_columns(at, [&](const float* p) FORGE_INLINE_BODY { return load_n(p, dim - at); });
  alignas(64) float totals[16];
  if constexpr (Count * kScoreTokens == 16)
    M::store(reduce_each<Sum>(sums), totals);
  else
    for (std::size_t i = 0; i < Count * kScoreTokens; ++i) totals[i] = reduce_add(sums[i]);
  for (std::size_t r = 0; r < Count; ++r)
    for (std::size_t t = 0; t < kScoreTokens; ++t)
      scores[(row0 + r) * kAttentionChunk + t] = totals[r * kScoreTokens + t] * scale;
}

/// block_scores for a block of float rows [32][head_dim].
template <std::size_t R>
FORGE_INLINE void shared_row_scores(const Chunk& chunk, const Rows& rows, const float* block, float* scores) {
  for (std::size_t t = 0; t < kKvBlockTokens; t += kScoreTokens) {
    const float* keys = block + t * chunk.head_dim;
    std::size_t row = 0;
    for (; row + kScoreQueries <= R; row += kScoreQueries)
      row_scores<kScoreQueries>(rows, row, keys, chunk.head_dim, chunk.scale, scores + t);
    for (; row < R; ++row) row_scores<1>(rows, row, keys, chunk.head_dim, chunk.scale, scores + t);
  }
}

/// compute_rows for `count` rows in groups[0] .. groups[(count - 1) / kRowsTogether]; only the last group may be partly
/// filled. scratch: attention_chunk_scratch_floats. Shared: keys and values are one row per token. Order: scores of all
/// blocks, softmax of all rows, then the values of all blocks. Each block is converted twice, once for keys and once
/// for values, because the buffer holds a single block.
template <class Kv, bool Shared>
void compute_groups(const Chunk& chunk, const Rows* groups, std::size_t count, float* scratch) {
  constexpr std::size_t kGroupScores = kRowsTogether * kAttentionChunk;
  const std::size_t group_count = (count + kRowsTogether - 1) / kRowsTogether;
  float* scores = scratch;                                     // group after group
  float* floats = scratch + kAttentionRows * kAttentionChunk;  // the converted block
  Chunk converted = chunk;
  for (std::size_t b = 0; b < kChunkBlocks; ++b)
    converted.keys[b] = converted.values[b] = reinterpret_cast<const std::byte*>(floats);
  SeenRange seen[kAttentionRows / kRowsTogether];
  std::size_t begin = kChunkBlocks, end = 0;
  const auto for_groups = [&](auto f) FORGE_INLINE_BODY {
    for (std::size_t g = 0; g < group_count; ++g)
      for_count<kRowsTogether>(count - g * kRowsTogether, [&]<std::size_t R>() FORGE_INLINE_BODY {
        f.template operator()<R>(groups[g], seen[g], scores + g * kGroupScores);
      });
  };
  for_groups([&]<std::size_t R>(const Rows& rows, SeenRange& range, float*) FORGE_INLINE_BODY {
    range = seen_range<R>(rows);
    clear_partials<R>(rows, chunk.value_dim);
    begin = min_of(begin, range.first / kKvBlockTokens);
    end = max_of(end, (range.last + kKvBlockTokens - 1) / kKvBlockTokens);
  });
  for (std::size_t block = begin; block < end; ++block) {
    const std::size_t from = block * kKvBlockTokens;
    const std::byte* ahead = block_ahead(chunk, block, begin, end);
    if constexpr (Shared)
      rows_to_floats<Kv>(chunk.keys[block], ahead, chunk.head_dim, floats);
    else
      keys_to_floats<Kv>(chunk.keys[block], ahead, chunk.head_dim, floats);
    for_groups([&]<std::size_t R>(const Rows& rows, const SeenRange& range, float* to) FORGE_INLINE_BODY {
      if (range.first >= from + kKvBlockTokens || range.last <= from) return;
      if constexpr (Shared)
        shared_row_scores<R>(chunk, rows, floats, to + from);
      else
        block_scores<KvFloats, R>(converted, rows, converted.keys[block], nullptr, to + from);
    });
  }
  for_groups([&]<std::size_t R>(const Rows& rows, const SeenRange&, float* to) FORGE_INLINE_BODY {
    for (std::size_t r = 0; r < R; ++r) softmax_of_chunk(chunk.softcap, to + r * kAttentionChunk, rows, r);
  });
  for (std::size_t block = begin; block < end; ++block) {
    const std::size_t from = block * kKvBlockTokens;
    rows_to_floats<Kv>(chunk.values[block], chunk.values[min_of(block + kBlocksAhead, end - 1)], chunk.value_row,
                       floats);
    for_groups([&]<std::size_t R>(const Rows& rows, const SeenRange& range, const float* with) FORGE_INLINE_BODY {
      add_seen_values<KvFloats, R>(converted, rows, range, with, from, from + kKvBlockTokens);
    });
  }
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
