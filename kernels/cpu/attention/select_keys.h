#pragma once
// The choice of the keys that take part in sparse attention (ir::SelectKeysAttrs), in two parts: the scores of a token
// for the index keys in the paged cache, and the choice of the best ones.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/tile.h"

namespace forge::cpu {

/// One token's index queries and its sequence's index keys. The kernel score_keys (kernels.h) scores positions [begin,
/// end), whole blocks of the cache but for the last:
///   weights       one row of scores:     sum over heads j of weights[j] * max(0, q_j . k)
///   no weights    a row for each head:   q_j . k
/// A score depends only on q, weights and its key.
struct ScoreKeysCall {
  KvShape kv;             ///< one head with a shared row
  const std::byte* pool;  ///< block b of this layer is at pool + b * block_stride
  std::size_t block_stride;
  const std::int32_t* block_table;
  const float* q;        ///< [heads][head_dim]
  const float* weights;  ///< [heads] or nullptr
  std::size_t heads, begin, end;
  float* scratch;  ///< score_keys_scratch_floats
  float* scores;   ///< of position 0; rows are `scores_stride` apart
  std::size_t scores_stride;
};
[[gnu::always_inline]] constexpr std::size_t score_keys_scratch_floats(const KvShape& kv) {
  constexpr std::size_t kScores = 8 * 256;
  return kScores + kKvBlockTokens * kv.head_dim;
}

/// How many positions are chosen, and how.
struct KeyChoice {
  std::size_t top_k = 1;  ///< blocks in a list
  std::size_t block = 1;  ///< positions that are chosen together, by the best of their scores
  std::size_t local = 0;  ///< newest blocks that are always chosen; at most top_k
};
/// Writes the numbers of the chosen blocks of `count` positions in ascending order to list [top_k], then -1. Of equal
/// scores the earlier position wins; NaN counts as the worst. scores [count] and scratch [count] are overwritten.
void choose_keys(const KeyChoice& choice, float* scores, std::size_t count, float* scratch, std::int32_t* list);

}  // namespace forge::cpu
