#pragma once
// Attention over the paged KV cache of one sequence and one KV head, for the query heads that share it (GQA).
//
// Absolute positions are cut into chunks of kAttentionChunk. Each chunk gives a partial result per query row:
//   m = largest score, l = sum of exp(score - m), acc = sum of exp(score - m) * V, in position order
// and the chunks' partials are merged in ascending order. So a query row's result depends only on its q, its position
// and the cache: not on the other rows of the call, not on how the prompt was cut into steps, not on which thread
// computed a chunk. attention_tile gives the same bits as attention_chunk plus attention_merge.
//
// Online softmax: arXiv 1805.02867; paged cache: arXiv 2309.06180; attention sinks: arXiv 2309.17453.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/tile.h"

namespace forge::cpu {

/// Positions of a chunk: 8 blocks of the cache.
inline constexpr std::size_t kAttentionChunk = 256;
/// The largest head_dim and value_dim.
inline constexpr std::size_t kHeadDimMax = 1024;
inline constexpr std::size_t kAttentionRows = 64;  ///< query rows for which a block is converted to floats once

/// What all queries of a call share: the cache and the score function.
struct AttentionParams {
  KvShape kv;                       ///< the layer's cache; widths 1 .. kHeadDimMax, multiples of 16 are fastest
  std::size_t group;                ///< query heads that share this KV head
  float scale;                      ///< score = scale * q.k
  float softcap = 0;                ///< 0: none; else score = softcap * tanh(score / softcap), before masking
  std::int32_t window = 0;          ///< sliding window; 0: positions p <= query are seen, else also p > query - window
  std::int32_t chunk = 0;           ///< 0: none; else positions before chunk * floor(query / chunk) are not seen
  const std::byte* pool;            ///< block b of this layer is at pool + b * block_stride
  std::size_t block_stride;         ///< bytes
  const std::int32_t* block_table;  ///< [ceil(kv_length / 32)]: this sequence's blocks
  std::size_t kv_length;            ///< stored positions; memory past them never affects a result, even if NaN
};

/// Query rows of one sequence and one KV head. The row of token t and query head g is at q + t * token_stride + g *
/// head_stride (in floats).
struct AttentionQuery {
  const float* q;
  std::size_t token_stride, head_stride;
  std::size_t tokens;
  const std::int32_t* positions;  ///< [tokens], absolute, in any order
  std::size_t kv_head;
  const float* sinks = nullptr;  ///< [group] or nullptr: a score that is added to l but has no V
  /// ALiBi (arXiv 2108.12409): [group] or nullptr; slope * distance is subtracted from a score, after the soft-cap.
  const float* slopes = nullptr;
  /// [tokens]: the positions that ALiBi's distances, to both sides, are from; nullptr: `positions`.
  const std::int32_t* places = nullptr;
  /// Sparse attention: nullptr, or a list of `selected_count` numbers a token, `selected_stride` apart, ascending and
  /// then -1. Number n stands for positions [n * selected_block, (n + 1) * selected_block); no others are seen.
  const std::int32_t* selected = nullptr;
  std::size_t selected_stride = 0, selected_count = 0, selected_block = 1;
};

/// Floats of one partial result:
///   | [0] m | [1] l | unused | [16 ..] acc[value_dim], not divided by l, padded to a multiple of 16 |
/// A row that sees nothing in the chunk has m = -infinity, l = 0, acc = 0.
[[gnu::always_inline]] constexpr std::size_t attention_partial_floats(std::size_t value_dim) {
  return 16 + (value_dim + 15) / 16 * 16;
}
/// Floats of scratch that attention_chunk needs, for any number of rows: the scores of kAttentionRows rows, and one
/// block of K or V converted to floats.
[[gnu::always_inline]] constexpr std::size_t attention_chunk_scratch_floats(const KvShape& kv) {
  const std::size_t width = kv.head_dim > kv.value_dim ? kv.head_dim : kv.value_dim;
  return kAttentionRows * kAttentionChunk + (kKvBlockTokens * width + 15) / 16 * 16;
}
/// Floats of scratch that attention_tile needs: two partial results per row, and attention_chunk's scratch.
///
/// The three kernels (Kernels in kernels.h):
///   attention_chunk  computes one chunk for all rows; writes partials [tokens][group], attention_partial_floats each
///   attention_merge  merges partials[c] at c * chunk_stride floats, c = 0 .. chunks-1, ascending, and writes row (t,
///                    g) to out + t * out_token_stride + g * out_head_stride; a row that sees nothing at all gives
///                    zeros
///   attention_tile   does both for all chunks that the rows see
[[gnu::always_inline]] constexpr std::size_t attention_scratch_floats(std::size_t tokens, std::size_t group,
                                                                      const KvShape& kv) {
  return 2 * tokens * group * attention_partial_floats(kv.value_dim) + attention_chunk_scratch_floats(kv);
}
/// Blocks that hold `tokens` tokens of up to `sequences` sequences, each of which begins a block.
[[gnu::always_inline]] constexpr std::size_t self_attention_blocks(std::size_t tokens, std::size_t sequences) {
  return (tokens + kKvBlockTokens - 1) / kKvBlockTokens + sequences;
}
/// Number of chunks of a cache of kv_length positions.
[[gnu::always_inline]] constexpr std::size_t attention_chunks(std::size_t kv_length) {
  return (kv_length + kAttentionChunk - 1) / kAttentionChunk;
}
/// The first position that a query at `position` sees: 0 unless it has a sliding window or chunked attention.
[[gnu::always_inline]] constexpr std::int32_t attention_first_position(const AttentionParams& params,
                                                                       std::int32_t position) {
  const std::int32_t of_window = params.window > 0 && position >= params.window ? position - params.window + 1 : 0;
  const std::int32_t of_chunk = params.chunk > 0 ? position / params.chunk * params.chunk : 0;
  return of_window > of_chunk ? of_window : of_chunk;
}
/// The first chunk of kAttentionChunk positions that a query at `position` sees; those before it need not be computed.
[[gnu::always_inline]] constexpr std::size_t attention_first_chunk(const AttentionParams& params,
                                                                   std::int32_t position) {
  return static_cast<std::size_t>(attention_first_position(params, position)) / kAttentionChunk;
}

}  // namespace forge::cpu
