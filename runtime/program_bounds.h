#pragma once
// Sizes that an executor takes from a program before it trusts anything in it. A plan file may be damaged or crafted,
// so every number is bounded before it is used in arithmetic or an allocation. All functions throw Error(kPlan) when a
// number is out of range.

#include <cstddef>
#include <cstdint>

#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

/// Maximum of each bound over all variants, at least 1. `rows` counts rows of logits; variants that return hidden rows
/// (narrower than the vocabulary) are counted in `hidden_rows` instead.
struct ProgramBounds {
  std::size_t tokens = 1, rows = 1, sequences = 1, table_blocks = 1, hidden_rows = 0;
};
[[nodiscard]] ProgramBounds bounds_of(const plan::ProgramT& program);

/// Returns `bytes` as a size after checking it against 2^44. `what` names the block in the error.
[[nodiscard]] std::size_t checked_bytes(std::int64_t bytes, const char* what);

/// Tokens per KV block. The same for all groups, because they share block indices of the block table.
[[nodiscard]] std::int64_t kv_block_tokens(const plan::ProgramT& program);
/// Blocks needed for `sequences` sequences of `context` positions each.
[[nodiscard]] std::int64_t kv_blocks_for(const plan::ProgramT& program, std::int64_t context, std::int64_t sequences);

/// Slots of recurrent state: `wanted`, or if that is 0, one for each sequence of a batch.
[[nodiscard]] std::int64_t state_slots_for(const plan::ProgramT& program, std::int64_t wanted);
/// Bytes of `slots` slots of recurrent state.
[[nodiscard]] std::size_t recurrent_bytes(const plan::ProgramT& program, std::int64_t slots);
/// Columns of the hidden rows (output of the final norm) that some variants return; 0 if all return logits.
[[nodiscard]] std::size_t hidden_width_of(const plan::ProgramT& program);

/// Bytes of the largest result of a step: logits [rows, vocab] or hidden rows [rows, hidden_width], f32.
[[nodiscard]] std::size_t logits_bytes(const plan::ProgramT& program);

}  // namespace forge::runtime
