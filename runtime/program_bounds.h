#pragma once
// Sizes that executors take from a program before anything in it is trusted. All throw Error(kPlan) for a program
// whose numbers are absurd.

#include <cstddef>
#include <cstdint>

#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

/// The largest of each bound over all variants; at least 1. Rows are logits'; those of variants that give hidden rows,
/// which are narrower, count apart.
struct ProgramBounds {
  std::size_t tokens = 1, rows = 1, sequences = 1, table_blocks = 1, hidden_rows = 0;
};
[[nodiscard]] ProgramBounds bounds_of(const plan::ProgramT& program);

/// `bytes` of the program's `what`, when that is a size at all.
[[nodiscard]] std::size_t checked_bytes(std::int64_t bytes, const char* what);

/// Tokens a KV block holds: the same in all groups, which share block tables.
[[nodiscard]] std::int64_t kv_block_tokens(const plan::ProgramT& program);
/// Blocks that `sequences` sequences of `context` positions fill.
[[nodiscard]] std::int64_t kv_blocks_for(const plan::ProgramT& program, std::int64_t context, std::int64_t sequences);

/// Bytes of recurrent state that `sequences` sequences have.
[[nodiscard]] std::size_t recurrent_bytes(const plan::ProgramT& program, std::int64_t sequences);
/// For executors without steps that read recurrent state. Throws Error(kPlan) for a program that has any.
void refuse_recurrent_state(const plan::ProgramT& program);

/// Columns of the hidden rows that variants give; 0: all give logits.
[[nodiscard]] std::size_t hidden_width_of(const plan::ProgramT& program);

/// Bytes of what leaves a step of the largest variant: logits, or hidden rows.
[[nodiscard]] std::size_t logits_bytes(const plan::ProgramT& program);

}  // namespace forge::runtime
