#pragma once
// What the state of a program holds and takes, for people and as JSON.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/plan_generated.h"
#include "support/json_text.h"

namespace forge::session {

/// One KV group.
struct KvReport {
  std::int64_t layers = 0, kv_heads = 0, head_dim = 0, value_dim = 0, block_tokens = 0, block_bytes = 0;
  bool shared_row = false;  ///< values are the first columns of keys
  std::int64_t window = 0;  ///< positions; 0: the whole context
  std::uint64_t blocks = 0, bytes = 0;
  std::uint64_t blocks_sequence = 0;  ///< that a sequence holds at most, between steps
  std::uint64_t bytes_sequence = 0;   ///< of these, all layers
};

/// One group of recurrent state, which every sequence has a slot of.
struct RecurrentReport {
  std::int64_t layers = 0, slot_bytes = 0;
  std::uint64_t bytes = 0, bytes_sequence = 0;
};

struct StateReport {
  std::vector<KvReport> kv;
  std::vector<RecurrentReport> recurrent;
};

/// Groups of a program with room for `sequences` sequences of `context` positions. Errors: kPlan for absurd numbers.
StateReport state_report(const plan::ProgramT& program, std::int64_t context, std::int64_t sequences);

/// A line for each group, indented by two.
std::string state_report_text(const StateReport& report);
/// Members "kv_groups" and "recurrent_groups" of the object that is open.
void state_report_json(JsonWriter& json, const StateReport& report);

}  // namespace forge::session
