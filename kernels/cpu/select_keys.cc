#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/cpu/attention/select_keys.h"

namespace forge::cpu {
namespace {

constexpr float kWorstKey = -std::numeric_limits<float>::infinity();

/// Replaces the scores of positions with those of their blocks, finite or kWorstKey, and those of local blocks with
/// infinity. Returns the number of blocks.
std::size_t block_scores_of(const KeyChoice& choice, float* scores, std::size_t count) {
  const std::size_t blocks = (count + choice.block - 1) / choice.block;
  for (std::size_t b = 0; b < blocks; ++b) {
    float best = kWorstKey;
    for (std::size_t p = b * choice.block; p < std::min((b + 1) * choice.block, count); ++p)
      if (scores[p] > best) best = scores[p];  // false for NaN
    scores[b] = std::min(best, std::numeric_limits<float>::max());
  }
  for (std::size_t b = blocks - std::min(blocks, choice.local); b < blocks; ++b)
    scores[b] = std::numeric_limits<float>::infinity();
  return blocks;
}

}  // namespace

// The top_k-th best score is found first. Then one pass over the blocks takes those above it, and of those equal to it
// the first ones, which leaves the list in order.
void choose_keys(const KeyChoice& choice, float* scores, std::size_t count, float* scratch, std::int32_t* list) {
  const std::size_t blocks = block_scores_of(choice, scores, count);
  const std::size_t chosen = std::min(blocks, choice.top_k);
  std::fill(list + chosen, list + choice.top_k, -1);
  if (chosen == 0) return;
  std::copy_n(scores, blocks, scratch);
  std::nth_element(scratch, scratch + chosen - 1, scratch + blocks, std::greater<>());
  const float least = scratch[chosen - 1];
  std::size_t equal = chosen - static_cast<std::size_t>(
                                   std::count_if(scores, scores + blocks, [&](float score) { return score > least; }));
  for (std::size_t b = 0; b < blocks; ++b) {
    if (scores[b] < least) continue;
    if (scores[b] == least) {
      if (equal == 0) continue;
      --equal;
    }
    *list++ = static_cast<std::int32_t>(b);
  }
}

}  // namespace forge::cpu
