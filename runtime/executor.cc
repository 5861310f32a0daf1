#include "runtime/executor.h"

#include <fmt/format.h>

#include "runtime/program_bounds.h"
#include "support/error.h"

namespace forge::runtime {

Executor::Executor(std::shared_ptr<const plan::ProgramT> program, std::int64_t kv_blocks, std::int64_t state_slots)
    : program_(std::move(program)),
      vocab_(checked_bytes(program_->vocab, "vocabulary")),
      kv_block_tokens_(runtime::kv_block_tokens(*program_)),
      kv_rooms_(runtime::kv_pool_sizes(*program_, kv_blocks)) {
  (void)facts_of(*program_);  // throws if they are invalid
  if (!program_->recurrent_groups.empty()) {
    const auto slots = state_slots_for(*program_, state_slots);
    (void)recurrent_bytes(*program_, slots);  // throws if they are too many or the groups are broken
    state_slots_ = static_cast<std::size_t>(slots);
  }
  if (program_->world != 1 || program_->rank != 0)
    throw Error(ErrorCode::kPlan, fmt::format("the plan's program is part {} of {}", program_->rank, program_->world),
                "forge supports one device per model", "compile the model again (forge-compile)");
  if (program_->input_width != 0)
    throw Error(ErrorCode::kPlan,
                fmt::format("the plan's program takes embeddings of width {} as input", program_->input_width),
                "forge supports token ids as input only", "compile the model again (forge-compile)");
  const auto bounds = bounds_of(*program_);
  tokens_max_ = bounds.tokens;
  rows_max_ = bounds.rows;
  hidden_width_ = hidden_width_of(*program_);
}

std::vector<KvWindow::Limits> Executor::kv_windows() const {
  std::vector<KvWindow::Limits> windows;
  for (std::size_t g = 0; g < kv_rooms_.size(); ++g)
    if (kv_rooms_[g].window > 0) windows.push_back({.group = static_cast<std::int32_t>(g), .room = kv_rooms_[g]});
  return windows;
}

}  // namespace forge::runtime
