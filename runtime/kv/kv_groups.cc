#include "runtime/kv/kv_groups.h"

#include <algorithm>

#include "runtime/program_bounds.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

constexpr std::int64_t kGroupsMax = 64;
constexpr std::int64_t kSequencesMax = std::int64_t{1} << 24;

std::size_t sequences_of(const plan::ProgramT& program) {
  return static_cast<std::size_t>(std::clamp<std::int64_t>(program.batch_max, 1, kSequencesMax));
}

}  // namespace

/// See the header. The bound is the sum over sequences: n tokens of one sequence touch at most (n - 1 + block - 1) /
/// block blocks beyond the block of their first token.
std::size_t kv_step_blocks(const plan::ProgramT& program) {
  const auto block = static_cast<std::size_t>(kv_block_tokens(program));
  const std::size_t tokens = bounds_of(program).tokens, sequences = std::min(sequences_of(program), tokens);
  return std::max(sequences, (tokens - sequences + sequences * (block - 1)) / block);
}

std::int64_t kv_context_blocks(const plan::ProgramT& program, std::int64_t wanted) {
  return wanted > 0 ? wanted : kv_blocks_for(program, program.context, program.batch_max);
}

std::vector<KvPoolSize> kv_pool_sizes(const plan::ProgramT& program, std::int64_t kv_blocks) {
  if (program.kv_groups.size() > kGroupsMax)
    throw Error(ErrorCode::kPlan, "the plan has too many KV groups", {}, "compile the model again (forge-compile)");
  const auto all = checked_bytes(kv_context_blocks(program, kv_blocks), "KV pool");
  const auto block = static_cast<std::size_t>(kv_block_tokens(program));
  std::vector<KvPoolSize> rooms;
  for (const auto& group : program.kv_groups) {
    if (group.window() < 0) throw Error(ErrorCode::kPlan, "the plan's KV geometry is broken", {}, "compile it again");
    const auto window = static_cast<std::size_t>(group.window());
    rooms.push_back({.blocks = all, .window = window});
    if (window == 0) continue;
    // What all sequences hold between steps, plus the blocks of one step.
    const auto held = sequences_of(program) * kv_window_blocks(window, block) + kv_step_blocks(program);
    rooms.back().blocks = std::min(all, held);
  }
  return rooms;
}

}  // namespace forge::runtime
