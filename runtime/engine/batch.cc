#include "runtime/engine/batch.h"

#include <algorithm>

#include "support/error.h"

namespace forge::engine {

/// Uses the largest variant that returns logits; of an encoder, whose variants all return hidden rows, the largest one.
/// Every sequence of a step may need a row of logits and has at least one token, hence the minimum of the three bounds.
BatchLimits BatchLimits::of(const runtime::Executor& executor) {
  const auto& program = executor.program();
  const plan::Bounds* largest = nullptr;
  const bool encoder = runtime::is_encoder(program);
  for (const auto& variant : program.variants)
    if ((encoder || variant->hidden_width == 0) && (largest == nullptr || variant->bounds.tokens() > largest->tokens()))
      largest = &variant->bounds;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(std::max<std::int64_t>(n, 0)); };
  BatchLimits limits;
  if (largest != nullptr) {
    limits.tokens = size(largest->tokens());
    limits.sequences = size(std::min({largest->sequences(), largest->rows(), largest->tokens()}));
    limits.table_blocks = size(largest->table_blocks());
    limits.kv_groups = program.kv_groups.size();
    limits.states = executor.state_slots() > 0;
    limits.context = std::min(size(program.context), limits.table_blocks * size(executor.kv_block_tokens()));
    limits.whole_prompts = encoder;
  }
  if (limits.sequences == 0 || limits.context == 0 || executor.kv_blocks() <= 0)
    throw Error(ErrorCode::kPlan, "the plan has no room for a sequence", {}, "compile the model again (forge-compile)");
  return limits;
}

BatchBuilder::BatchBuilder(const BatchLimits& limits)
    : table_blocks_(limits.table_blocks), kv_groups_(limits.kv_groups), states_(limits.states) {
  for (auto* list : {&ids_, &positions_, &sequence_, &rows_}) list->reserve(limits.tokens);
  prompt_.reserve(limits.tokens);
  for (auto* list : {&kv_length_, &state_read_, &state_write_}) list->reserve(limits.sequences);
  block_table_.resize(kv_groups_ * limits.sequences * table_blocks_);
}

/// Flattens the plan's parts into the arrays of StepBatch.
runtime::StepBatch BatchBuilder::build(const StepPlan& plan) {
  for (auto* list : {&ids_, &positions_, &sequence_, &rows_, &kv_length_, &state_read_, &state_write_}) list->clear();
  prompt_.clear();
  for (const auto& part : plan.parts) {
    const auto sequence = static_cast<std::int32_t>(kv_length_.size());
    for (std::size_t row = ids_.size() + part.first_row, end = row + part.rows; row < end; ++row)
      rows_.push_back(static_cast<std::int32_t>(row));
    for (std::size_t i = 0; i < part.ids.size(); ++i) {
      ids_.push_back(part.ids[i]);
      positions_.push_back(static_cast<std::int32_t>(part.position + i));
      sequence_.push_back(sequence);
      prompt_.push_back(i < part.prompt ? 1 : 0);
    }
    for (std::size_t group = 0; group < kv_groups_; ++group) {
      const std::size_t row = group * plan.parts.size() + kv_length_.size();
      std::ranges::copy(part.kv->table(group), block_table_.begin() + static_cast<std::ptrdiff_t>(row * table_blocks_));
    }
    if (states_) {
      state_read_.push_back(part.kv->state_read());
      state_write_.push_back(part.kv->state_write());
    }
    kv_length_.push_back(static_cast<std::int32_t>(part.position + part.ids.size()));
  }
  return {.ids = ids_,
          .positions = positions_,
          .sequence = sequence_,
          .rows = rows_,
          .prompt = prompt_,
          .kv_length = kv_length_,
          .block_table = std::span(block_table_).first(kv_groups_ * kv_length_.size() * table_blocks_),
          .table_stride = table_blocks_,
          .copies = plan.copies,
          .state_read = state_read_,
          .state_write = state_write_,
          .hidden = plan.hidden};
}

}  // namespace forge::engine
