#pragma once
// StepBatch, the input of one step as the engine builds it, and the checks that every executor makes before it uses
// one.
//
// Example: sequence 0 prefills three tokens from position 4 on, sequence 1 decodes one token at position 9. Logits are
// wanted for the last token of each.
//
//   ids       = {11, 12, 13, 42}      [T = 4]
//   positions = { 4,  5,  6,  9}      [T]
//   sequence  = { 0,  0,  0,  1}      [T]
//   rows      = { 2,  3}              [R = 2]
//   kv_length = { 7, 10}              [B = 2]

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kv/kv_groups.h"

namespace forge::runtime {

/// Copies the contents of KV block `from` to block `to`, in all layers of one KV group, or with kWithoutWindow in all
/// groups without a sliding window. Used for copy-on-write of shared blocks.
struct BlockCopy {
  static constexpr std::int32_t kWithoutWindow = -1;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t group = kWithoutWindow;
};

/// Input of one step: T tokens of B sequences. The spans must stay valid during the call only.
struct StepBatch {
  std::span<const std::int32_t> ids, positions;  ///< [T]; positions are absolute
  std::span<const std::int32_t> sequence;        ///< [T], ascending: which of the B sequences the token belongs to
  std::span<const std::int32_t> rows;            ///< [R], indices of the tokens whose logits are wanted
  /// [T], 1 for tokens of a long prompt, which the target computes with other kernels (TargetFacts.long_prompt); empty
  /// if there are none. The flag depends on the prompt's length, never on the step, so results do not depend on how a
  /// prompt is cut into steps.
  std::span<const std::uint8_t> prompt = {};
  std::span<const std::int32_t> kv_length;  ///< [B], number of positions of each sequence after this step
  /// [KV groups][B][table_stride]: block indices into each group's pool. Entries in front of a sliding window are not
  /// read.
  std::span<const std::int32_t> block_table;
  std::size_t table_stride = 0;
  /// Done in this order before the step writes anything. A block may be the source of one copy and the target of a
  /// later one.
  std::span<const BlockCopy> copies = {};
  /// [B], only for programs with recurrent state: the slot that each sequence continues, -1 for a sequence that starts
  /// from zeros, and the slot where its state after this step goes. Both may be the same; no two sequences write one
  /// slot, and none writes a slot that another one reads.
  std::span<const std::int32_t> state_read = {}, state_write = {};
  bool hidden = false;  ///< `rows` asks for rows of the final norm (embeddings) instead of logits
};

/// Bounds against which a batch is checked.
struct StepLimits {
  std::size_t vocab = 0;
  std::span<const KvPoolSize> rooms;  ///< of each KV group
  std::size_t block_tokens = 1;
  std::size_t table_blocks = 0;  ///< block table entries per sequence in the chosen variant
  std::size_t state_slots = 0;   ///< slots of recurrent state; 0: the program has none
};

/// Destination of the checked inputs. Each array has room for the variant's bounds.
struct StepInputs {
  std::int32_t *ids = nullptr, *positions = nullptr, *sequence = nullptr, *rows = nullptr, *kv_length = nullptr,
               *block_table = nullptr, *state_read = nullptr, *state_write = nullptr;
  std::size_t table_stride = 0;  ///< entries per sequence in block_table
  std::size_t group_stride = 0;  ///< entries per KV group in block_table
};

/// Checks a batch that fits the variant's bounds and copies it to `to`. Only the used part of each block table is
/// copied: from the first block that the sequence's first token in this step can see (sliding window) to the block of
/// its last position; entries before are set to 0. Throws Error(kInternal) when the batch names tokens, positions or
/// blocks that do not exist.
void copy_checked_inputs(const StepBatch& batch, const StepLimits& limits, const StepInputs& to);

/// True if `copy` applies to KV group `group`.
[[nodiscard]] bool copy_applies_to(const BlockCopy& copy, std::span<const KvPoolSize> rooms, std::size_t group);

/// Throws Error(kInternal): the batch is larger than every variant of the plan.
[[noreturn]] void throw_batch_too_large(const StepBatch& batch);

/// Returns the first variant that has room for the batch and that returns what it wants, logits or hidden rows. Plans
/// list smaller variants first, so this is the cheapest one. A Variant has the members tokens, rows, sequences and
/// hidden_width. Throws Error(kInternal) if there is none.
template <class Variant>
const Variant& choose_variant(const std::vector<Variant>& variants, const StepBatch& batch) {
  for (const auto& variant : variants)
    if (batch.ids.size() <= variant.tokens && batch.rows.size() <= variant.rows &&
        batch.kv_length.size() <= variant.sequences && (variant.hidden_width > 0) == batch.hidden)
      return variant;
  throw_batch_too_large(batch);
}

}  // namespace forge::runtime
