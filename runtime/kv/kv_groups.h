#pragma once
// Sizes of the KV pools of a program. A KV group is a set of layers with the same KV geometry and window. Groups
// without a sliding window keep the whole context; groups with one keep only the positions that the next token can see,
// plus a step's own tokens while it runs.
//
// Positions stay logical in both cases: the block table has one entry per block of the context, and kNoBlock where a
// window has moved on. Example: block 4 tokens, window 8, next position 21 (it sees positions 14 to 21):
//
//   logical block      0    1    2    3    4    5
//   positions         0-3  4-7  8-11 12-15 16-19 20-23
//   block table        -    -    -    3    8    1

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

/// Block table entry of a logical block that the sequence does not hold.
inline constexpr std::int32_t kNoBlock = -1;

/// Size of one group's pool.
struct KvPoolSize {
  std::size_t blocks = 0;
  std::size_t window = 0;  ///< positions that a token attends to, including its own; 0: no sliding window
};

/// Most blocks that `window` consecutive positions can touch, wherever they start. A sequence holds at most this many
/// between steps. Example: 8 positions in blocks of 4 touch 3 blocks.
[[nodiscard]] constexpr std::size_t kv_window_blocks(std::size_t window, std::size_t block_tokens) {
  return window < 2 ? 1 : (window - 2) / block_tokens + 2;
}

/// Index of the first logical block that a token at `position` can see.
[[nodiscard]] constexpr std::size_t kv_first_block(std::size_t position, std::size_t window, std::size_t block_tokens) {
  return window == 0 || position < window ? 0 : (position - window + 1) / block_tokens;
}

/// Blocks that a window group needs for one step in addition to its sequences' windows: enough for the step's tokens
/// however they are distributed over sequences, and at least one per sequence, because a decode loop runs ahead of the
/// host. Throws Error(kPlan) when a number is out of range.
[[nodiscard]] std::size_t kv_step_blocks(const plan::ProgramT& program);

/// Total blocks of context: `wanted`, or if that is 0, what the program's context and batch require.
[[nodiscard]] std::int64_t kv_context_blocks(const plan::ProgramT& program, std::int64_t wanted);

/// Pool sizes of all groups, for kv_context_blocks(program, kv_blocks) blocks of context. A window group's pool is
/// never larger than that. Throws Error(kPlan) when a number is out of range.
[[nodiscard]] std::vector<KvPoolSize> kv_pool_sizes(const plan::ProgramT& program, std::int64_t kv_blocks);

}  // namespace forge::runtime
