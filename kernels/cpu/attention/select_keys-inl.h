#pragma once
// Scores of index keys (select_keys.h). Blocks of the cache are converted to floats and multiplied as those of
// attention on shared rows are.

#include "kernels/cpu/attention/attention_groups-inl.h"
#include "kernels/cpu/attention/select_keys.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

static_assert(kRowsTogether * kAttentionChunk <= 8 * 256);

/// sum += weight * max(0, score) for the 32 positions of a block, of which `count` exist.
FORGE_INLINE void add_weighted(const float* score, float weight, std::size_t count, float* sum) {
  for (std::size_t i = 0; i < count; i += 16) {
    const std::size_t some = count - i < 16 ? count - i : 16;
    const V positive = vmax(M::load(score + i), zero());
    store_some(fma(M::set1(weight), positive, load_some(sum + i, some)), sum + i, some);
  }
}

template <class Kv>
void score_keys_of(const ScoreKeysCall& call) {
  const std::size_t dim = call.kv.head_dim;
  Chunk chunk{};
  chunk.head_dim = dim;
  chunk.scale = 1;
  Rows rows{};
  float* const scores = call.scratch;
  float* const floats = call.scratch + 8 * 256;
  for (std::size_t at = call.begin; at < call.end; at += kKvBlockTokens) {
    const std::size_t count = min_of(call.end - at, kKvBlockTokens);
    const auto number = static_cast<std::ptrdiff_t>(call.block_table[at / kKvBlockTokens]);
    const std::byte* block = call.pool + number * static_cast<std::ptrdiff_t>(call.block_stride);
    rows_to_floats<Kv>(block, block, dim, floats);
    if (call.weights != nullptr) std::memset(call.scores + at, 0, count * sizeof(float));
    for (std::size_t head = 0; head < call.heads; head += kRowsTogether) {
      const std::size_t some = min_of(call.heads - head, kRowsTogether);
      for (std::size_t r = 0; r < some; ++r) rows.q[r] = call.q + (head + r) * dim;
      for_count<kRowsTogether>(some, [&]<std::size_t R>() { shared_row_scores<R>(chunk, rows, floats, scores); });
      for (std::size_t r = 0; r < some; ++r) {
        const float* score = scores + r * kAttentionChunk;
        if (call.weights != nullptr)
          add_weighted(score, call.weights[head + r], count, call.scores + at);
        else
          std::memcpy(call.scores + (head + r) * call.scores_stride + at, score, count * sizeof(float));
      }
    }
  }
}
inline void score_keys(const ScoreKeysCall& call) {
  if (call.kv.type == DType::kQ8_0)
    score_keys_of<KvQ8>(call);
  else
    score_keys_of<KvF16>(call);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
