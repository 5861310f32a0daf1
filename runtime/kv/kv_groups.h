#pragma once
// What the KV groups of a program hold. Layers of a group without a window keep the whole context; those with a window
// keep the positions that the next token can still see, and a step's own tokens while it runs. Positions stay logical:
// a block table has an entry for each block of the context, and kNoBlock where a window has let go of it.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

inline constexpr std::int32_t kNoBlock = -1;

/// One group's pool.
struct KvRoom {
  std::size_t blocks = 0;
  std::size_t window = 0;  ///< positions that a token sees, its own among them; 0: all
};

/// Blocks that `window` positions touch at most, wherever they begin: what a sequence holds between steps.
[[nodiscard]] constexpr std::size_t kv_window_blocks(std::size_t window, std::size_t block_tokens) {
  return window < 2 ? 1 : (window - 2) / block_tokens + 2;
}

/// The first block that a token at `position` sees.
[[nodiscard]] constexpr std::size_t kv_first_block(std::size_t position, std::size_t window, std::size_t block_tokens) {
  return window == 0 || position < window ? 0 : (position - window + 1) / block_tokens;
}

/// Blocks beyond its sequences' windows that a group needs for one step of the program: what the step's tokens fill,
/// however they are shared out, and one for each sequence, since a decode loop runs ahead of whoever takes its tokens.
/// Throws Error(kPlan) for absurd numbers.
[[nodiscard]] std::size_t kv_step_blocks(const plan::ProgramT& program);

/// Blocks of context that all sequences have between them: `wanted`, or, 0, as many as context and batch of the program
/// take.
[[nodiscard]] std::int64_t kv_context_blocks(const plan::ProgramT& program, std::int64_t wanted);

/// The pools of a program whose sequences have kv_context_blocks(program, kv_blocks) between them. A window's is never
/// larger than that. Throws Error(kPlan) for absurd numbers.
[[nodiscard]] std::vector<KvRoom> kv_rooms(const plan::ProgramT& program, std::int64_t kv_blocks);

}  // namespace forge::runtime
