#include "runtime/step_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"

namespace forge::runtime {
namespace {

bool in(std::int32_t value, std::size_t bound) {
  return value >= 0 && static_cast<std::size_t>(value) < bound;
}

/// Returns the lowest position of sequence `s` in this step. Its tokens begin at index `t`; `t` is advanced past them.
std::size_t first_position(const StepBatch& batch, std::size_t s, std::size_t& t) {
  auto lowest = batch.kv_length[s];
  for (; t < batch.sequence.size() && batch.sequence[t] <= static_cast<std::int32_t>(s); ++t)
    lowest = std::min(lowest, batch.positions[t]);
  return static_cast<std::size_t>(std::max(lowest, 0));
}

/// Copies block tables and lengths. The lowest position decides where the copy starts: blocks in front of its sliding
/// window may have been given back (kNoBlock) and are replaced by 0, which no kernel reads.
void take_tables(const StepBatch& batch, const StepLimits& limits, const StepInputs& to) {
  std::size_t token = 0;
  for (std::size_t s = 0; s < batch.kv_length.size(); ++s) {
    const auto length = batch.kv_length[s];
    const std::size_t blocks =
        length > 0 ? (static_cast<std::size_t>(length) + limits.block_tokens - 1) / limits.block_tokens : 0;
    invariant(length > 0 && blocks <= batch.table_stride && blocks <= limits.table_blocks, "RT-003",
              "a sequence is longer than its block table");
    const std::size_t position = first_position(batch, s, token);
    for (std::size_t g = 0; g < limits.rooms.size(); ++g) {
      const auto& room = limits.rooms[g];
      const auto row = g * batch.kv_length.size() + s;
      const auto table = batch.block_table.subspan(row * batch.table_stride, blocks);
      auto* out = to.block_table + g * to.group_stride + s * to.table_stride;
      const std::size_t first = std::min(blocks, kv_first_block(position, room.window, limits.block_tokens));
      std::fill_n(out, first, 0);
      for (const auto block : table.subspan(first))
        invariant(in(block, room.blocks), "RT-004", "a block is not in the KV pool");
      std::ranges::copy(table.subspan(first), out + first);
    }
    to.kv_length[s] = length;
  }
}

/// Copies the slots of recurrent state.
void take_slots(const StepBatch& batch, const StepLimits& limits, const StepInputs& to) {
  const std::size_t sequences = batch.kv_length.size();
  invariant(batch.state_read.size() == sequences && batch.state_write.size() == sequences, "RT-010",
            "a step has no slots for its sequences' recurrent state");
  for (std::size_t s = 0; s < sequences; ++s) {
    const auto read = batch.state_read[s], write = batch.state_write[s];
    invariant((read == -1 || in(read, limits.state_slots)) && in(write, limits.state_slots), "RT-011",
              "a slot of recurrent state does not exist");
    for (std::size_t other = 0; other < sequences; ++other)
      invariant(other == s || (batch.state_write[other] != write && batch.state_read[other] != write), "RT-012",
                "two sequences of a step share a slot of recurrent state that one of them writes");
    to.state_read[s] = read;
    to.state_write[s] = write;
  }
}

}  // namespace

void copy_checked_inputs(const StepBatch& batch, const StepLimits& limits, const StepInputs& to) {
  const std::size_t tokens = batch.ids.size(), sequences = batch.kv_length.size();
  invariant(tokens > 0 && batch.positions.size() == tokens && batch.sequence.size() == tokens, "RT-001",
            "a step's inputs differ in length");
  invariant(batch.prompt.empty() || batch.prompt.size() == tokens, "RT-009",
            "a step's prompt flags differ in number from its tokens");
  invariant(batch.table_stride <= to.table_stride &&
                batch.block_table.size() >= limits.rooms.size() * sequences * batch.table_stride,
            "RT-002", "a block table is larger than the plan's");
  take_tables(batch, limits, to);
  if (limits.state_slots > 0) take_slots(batch, limits, to);
  for (const auto& copy : batch.copies)
    for (std::size_t g = 0; g < limits.rooms.size(); ++g)
      invariant(!copy_applies_to(copy, limits.rooms, g) ||
                    (in(copy.from, limits.rooms[g].blocks) && in(copy.to, limits.rooms[g].blocks)),
                "RT-008", "a block copy names a block that is not in the KV pool");
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

bool copy_applies_to(const BlockCopy& copy, std::span<const KvPoolSize> rooms, std::size_t group) {
  return copy.group == BlockCopy::kWithoutWindow ? rooms[group].window == 0
                                                 : copy.group == static_cast<std::int32_t>(group);
}

void throw_batch_too_large(const StepBatch& batch) {
  throw Error(
      ErrorCode::kInternal, "a step is larger than every variant of the plan",
      fmt::format("{} tokens, {} rows, {} sequences", batch.ids.size(), batch.rows.size(), batch.kv_length.size()));
}

}  // namespace forge::runtime
