#pragma once
// Attention over the paged KV cache of one sequence and one KV head, for the query heads that share it.
// Absolute positions are cut into chunks of kAttentionChunk. A chunk is computed from a fresh start (largest score m,
// l = sum of exp(score - m), acc = sum of exp(score - m) * V in position order), and chunks are merged in ascending
// order. What a query row gets therefore depends only on its q, its position and the cache: not on which other rows
// are in the call, not on how a prompt was cut, not on which thread computed which chunk. `attention_tile` and
// `attention_chunk` + `attention_merge` give the same bits.
// Online softmax: arXiv 1805.02867; paged cache: arXiv 2309.06180; sinks: arXiv 2309.17453.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/tile.h"

namespace forge::cpu {

inline constexpr std::size_t kAttentionChunk = 256;
inline constexpr std::size_t kHeadDimMax = 1024;
inline constexpr std::size_t kAttentionRows = 64;  ///< query rows that share a block's conversion to floats

struct AttentionParams {
  KvShape kv;                       ///< of the layer; widths 1 .. kHeadDimMax; multiples of 16 are fastest
  std::size_t group;                ///< query heads that share this KV head
  float scale;                      ///< of q.k
  float softcap = 0;                ///< 0: none; else score = softcap * tanh(score / softcap), before the mask
  std::int32_t window = 0;          ///< 0: every position p <= query is seen; else only p > query - window
  const std::byte* pool;            ///< block b of this layer is at pool + b * block_stride
  std::size_t block_stride;         ///< bytes
  const std::int32_t* block_table;  ///< [ceil(kv_length / 32)], of this sequence
  std::size_t kv_length;            ///< positions that are stored; what lies behind is never used, NaN or not
};

/// Query rows of one sequence and one KV head: row (t, g) is at q + t*token_stride + g*head_stride (floats).
struct AttentionQuery {
  const float* q;
  std::size_t token_stride, head_stride;
  std::size_t tokens;
  const std::int32_t* positions;  ///< [tokens], absolute; any order
  std::size_t kv_head;
  const float* sinks = nullptr;  ///< [group]: a score that takes part in the sum but has no value; nullptr: none
};

/// Floats of one partial result: [0] m, [1] l, from [16] acc[value_dim] (not divided by l). A row that sees nothing in
/// the chunk has m = -infinity, l = 0, acc = 0.
[[gnu::always_inline]] constexpr std::size_t attention_partial_floats(std::size_t value_dim) {
  return 16 + (value_dim + 15) / 16 * 16;
}
/// Floats that attention_chunk works with, whatever the number of rows: their scores and a block of K or V.
[[gnu::always_inline]] constexpr std::size_t attention_chunk_scratch_floats(const KvShape& kv) {
  const std::size_t width = kv.head_dim > kv.value_dim ? kv.head_dim : kv.value_dim;
  return kAttentionRows * kAttentionChunk + (kKvBlockTokens * width + 15) / 16 * 16;
}
/// attention_chunk writes partials [tokens][group] of attention_partial_floats each.
/// attention_merge reads partials[c] at c * chunk_stride floats, c = 0 .. chunks-1 in ascending chunk order, and writes
/// out row (t, g) at out + t*out_token_stride + g*out_head_stride. A row that sees nothing at all gives zeros.
/// attention_tile loops over all chunks itself; scratch: attention_scratch_floats(...) floats.
[[gnu::always_inline]] constexpr std::size_t attention_scratch_floats(std::size_t tokens, std::size_t group,
                                                                      const KvShape& kv) {
  return 2 * tokens * group * attention_partial_floats(kv.value_dim) + attention_chunk_scratch_floats(kv);
}
/// Chunks 0 .. n-1 that a cache of kv_length positions has.
[[gnu::always_inline]] constexpr std::size_t attention_chunks(std::size_t kv_length) {
  return (kv_length + kAttentionChunk - 1) / kAttentionChunk;
}
/// The first chunk that a query at `position` sees; earlier ones need not be computed. With a window it grows.
[[gnu::always_inline]] constexpr std::size_t attention_first_chunk(std::int32_t position, std::int32_t window) {
  return window <= 0 || position < window ? 0 : static_cast<std::size_t>(position - window + 1) / kAttentionChunk;
}

}  // namespace forge::cpu
