#include "runtime/program_bounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"

namespace forge::runtime {
namespace {

// Limits for a plan's numbers, far above anything real: 2^24 tokens, rows, sequences or blocks; blocks of 16 TiB.
constexpr std::int64_t kBoundMax = std::int64_t{1} << 24;
constexpr std::int64_t kBytesMax = std::int64_t{1} << 44;
constexpr std::int64_t kBlockTokensMax = 4096;
/// Positions of a block where a model has no KV cache: blocks only index tokens then.
constexpr std::int64_t kBlockTokensWithoutKv = 32;

[[noreturn]] void fail(std::string what) {
  throw Error(ErrorCode::kPlan, std::move(what), {}, "compile the model again (forge-compile)");
}

}  // namespace

ProgramBounds bounds_of(const plan::ProgramT& program) {
  ProgramBounds most;
  const auto take = [](std::size_t& largest, std::int64_t bound) {
    if (bound > kBoundMax) fail("a variant's bounds are out of range");
    if (bound > 0) largest = std::max(largest, static_cast<std::size_t>(bound));
  };
  for (const auto& variant : program.variants) {
    if (variant == nullptr) continue;
    take(most.tokens, variant->bounds.tokens());
    take(variant->hidden_width > 0 ? most.hidden_rows : most.rows, variant->bounds.rows());
    take(most.sequences, variant->bounds.sequences());
    take(most.table_blocks, variant->bounds.table_blocks());
  }
  return most;
}

std::size_t checked_bytes(std::int64_t bytes, const char* what) {
  if (bytes < 0 || bytes > kBytesMax) fail(fmt::format("the size of the plan's {} is out of range", what));
  return static_cast<std::size_t>(bytes);
}

std::int64_t kv_block_tokens(const plan::ProgramT& program) {
  if (program.kv_groups.empty()) return kBlockTokensWithoutKv;
  const std::int64_t tokens = program.kv_groups.front().block_tokens();
  for (const auto& group : program.kv_groups)
    if (group.block_tokens() != tokens || tokens < 1 || tokens > kBlockTokensMax)
      fail("the plan's KV geometry is broken");
  return tokens;
}

std::int64_t kv_blocks_for(const plan::ProgramT& program, std::int64_t context, std::int64_t sequences) {
  if (context < 0 || context > kBytesMax || sequences < 0 || sequences > kBoundMax)
    fail("the plan's context or batch is out of range");
  const auto tokens = kv_block_tokens(program);
  return (context + tokens - 1) / tokens * sequences;
}

std::int64_t state_slots_for(const plan::ProgramT& program, std::int64_t wanted) {
  return wanted > 0 ? wanted : program.batch_max;
}

std::size_t recurrent_bytes(const plan::ProgramT& program, std::int64_t slots) {
  constexpr std::int64_t kLayersMax = 1 << 16, kSlotMax = std::int64_t{1} << 30;
  if (slots < 0 || slots > kBoundMax) fail("the number of state slots is out of range");
  std::int64_t bytes = 0;
  for (const auto& group : program.recurrent_groups) {
    if (group.layers() < 1 || group.layers() > kLayersMax || group.slot_bytes() < 1 || group.slot_bytes() % 4 != 0 ||
        group.slot_bytes() > kSlotMax)
      // Checked in each round so that bytes * slots below cannot overflow.
      fail("the geometry of the plan's recurrent state is broken");
    bytes += group.layers() * group.slot_bytes();
    if (bytes > kBytesMax / std::max<std::int64_t>(slots, 1))
      fail("the size of the plan's recurrent state is out of range");
  }
  return static_cast<std::size_t>(bytes * slots);
}

std::size_t hidden_width_of(const plan::ProgramT& program) {
  std::int64_t width = 0;
  for (const auto& variant : program.variants) {
    if (variant == nullptr || variant->hidden_width == 0) continue;
    if (variant->hidden_width < 0 || variant->hidden_width > kBoundMax || (width > 0 && variant->hidden_width != width))
      fail("the width of the plan's hidden rows is out of range");
    width = variant->hidden_width;
  }
  return static_cast<std::size_t>(width);
}

std::size_t logits_bytes(const plan::ProgramT& program) {
  constexpr std::int64_t kVocabMax = std::int64_t{1} << 28;
  if (program.vocab > kVocabMax) fail("the size of the plan's vocabulary is out of range");
  const auto bounds = bounds_of(program);
  return std::max(bounds.rows * checked_bytes(program.vocab, "vocabulary"),
                  bounds.hidden_rows * hidden_width_of(program)) *
         sizeof(float);
}

}  // namespace forge::runtime
