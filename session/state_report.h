#pragma once
// Sizes of a program's per-sequence state (KV cache and recurrent state), as text and as JSON. Used by forge-inspect.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/plan_generated.h"
#include "support/json_text.h"

namespace forge::session {

/// One KV group: layers whose KV cache has the same shape. `bytes` sums are over all layers of the group.
struct KvReport {
  std::int64_t layers = 0, kv_heads = 0, head_dim = 0, value_dim = 0, block_tokens = 0, block_bytes = 0;
  bool shared_row = false;  ///< values are the first value_dim columns of keys (MLA)
  std::int64_t window = 0;  ///< sliding window in tokens; 0: the whole context
  std::uint64_t blocks = 0, bytes = 0;
  std::uint64_t blocks_sequence = 0;  ///< most blocks that one sequence holds between steps
  std::uint64_t bytes_sequence = 0;   ///< size of blocks_sequence blocks in all layers
};

/// One group of recurrent state, of which every sequence has one slot.
struct RecurrentReport {
  std::int64_t layers = 0, slot_bytes = 0;
  std::uint64_t bytes = 0, bytes_sequence = 0;
};

struct StateReport {
  std::vector<KvReport> kv;
  std::vector<RecurrentReport> recurrent;
};

/// The groups of a program, sized for `sequences` sequences of `context` tokens. Errors: kPlan for sizes out of range.
StateReport state_report(const plan::ProgramT& program, std::int64_t context, std::int64_t sequences);

/// One line per group, indented by two spaces.
std::string state_report_text(const StateReport& report);
/// Writes the members "kv_groups" and "recurrent_groups" into the object that is open in `json`.
void state_report_json(JsonWriter& json, const StateReport& report);

}  // namespace forge::session
