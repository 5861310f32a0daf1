#pragma once
// What the KV cache of a program holds and takes, for people and as JSON.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/plan_generated.h"
#include "support/json_text.h"

namespace forge::tools {

/// One KV group.
struct KvReport {
  std::int64_t layers = 0, kv_heads = 0, head_dim = 0, block_tokens = 0, block_bytes = 0;
  std::int64_t window = 0;  ///< positions; 0: the whole context
  std::uint64_t blocks = 0, bytes = 0;
  std::uint64_t blocks_sequence = 0;  ///< that a sequence holds at most, between steps
  std::uint64_t bytes_sequence = 0;   ///< of these, all layers
};

/// Groups of a program with room for `sequences` sequences of `context` positions. Errors: kPlan for absurd numbers.
std::vector<KvReport> kv_report(const plan::ProgramT& program, std::int64_t context, std::int64_t sequences);

/// A line for each group, indented by two.
std::string kv_report_text(const std::vector<KvReport>& groups);
/// A member "kv_groups" of the object that is open.
void kv_report_json(JsonWriter& json, const std::vector<KvReport>& groups);

}  // namespace forge::tools
