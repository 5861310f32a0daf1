#include "runtime/step_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"

namespace forge::runtime {
namespace {

bool in(std::int32_t value, std::size_t bound) {
  return value >= 0 && static_cast<std::size_t>(value) < bound;
}

void take_tables(const StepBatch& batch, const StepLimits& limits, const StepInputs& to) {
  for (std::size_t s = 0; s < batch.kv_length.size(); ++s) {
    const auto length = batch.kv_length[s];
    const std::size_t blocks =
        length > 0 ? (static_cast<std::size_t>(length) + limits.block_tokens - 1) / limits.block_tokens : 0;
    invariant(length > 0 && blocks <= batch.table_stride && blocks <= limits.table_blocks, "RT-003",
              "a sequence is longer than its block table");
    const auto table = batch.block_table.subspan(s * batch.table_stride, blocks);
    for (const auto block : table) invariant(in(block, limits.kv_blocks), "RT-004", "a block is not in the KV pool");
    std::ranges::copy(table, to.block_table + s * to.table_stride);
    to.kv_length[s] = length;
  }
}

}  // namespace

void take_inputs(const StepBatch& batch, const StepLimits& limits, const StepInputs& to) {
  const std::size_t tokens = batch.ids.size(), sequences = batch.kv_length.size();
  invariant(tokens > 0 && batch.positions.size() == tokens && batch.sequence.size() == tokens, "RT-001",
            "a step's inputs differ in length");
  invariant(batch.table_stride <= to.table_stride && batch.block_table.size() >= sequences * batch.table_stride,
            "RT-002", "a block table is larger than the plan's");
  take_tables(batch, limits, to);
  for (const auto& copy : batch.copies)
    invariant(in(copy.from, limits.kv_blocks) && in(copy.to, limits.kv_blocks), "RT-008",
              "a block that is copied is not in the KV pool");
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto sequence = batch.sequence[t], position = batch.positions[t];
    invariant(in(batch.ids[t], limits.vocab), "RT-005", "a token id is not in the vocabulary");
    invariant(in(sequence, sequences) &&
                  in(position, static_cast<std::size_t>(batch.kv_length[static_cast<std::size_t>(sequence)])),
              "RT-006", "a token's sequence or position does not exist");
    to.ids[t] = batch.ids[t];
    to.positions[t] = position;
    to.sequence[t] = sequence;
  }
  for (std::size_t r = 0; r < batch.rows.size(); ++r) {
    invariant(in(batch.rows[r], tokens), "RT-007", "logits of a token that is not in the step");
    to.rows[r] = batch.rows[r];
  }
}

void refuse_batch(const StepBatch& batch) {
  throw Error(
      ErrorCode::kInternal, "a step is larger than every variant of the plan",
      fmt::format("{} tokens, {} rows, {} sequences", batch.ids.size(), batch.rows.size(), batch.kv_length.size()));
}

}  // namespace forge::runtime
