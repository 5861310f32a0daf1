#pragma once
// A step's input as callers give it, and the checks that every executor makes of it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kv/kv_groups.h"

namespace forge::runtime {

/// The contents of block `from` go to block `to`: in every layer of one KV group, or of all groups without a window.
struct BlockCopy {
  static constexpr std::int32_t kWithoutWindow = -1;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t group = kWithoutWindow;
};

/// One step's input: T tokens of B sequences. Spans are read during the call only.
struct StepBatch {
  std::span<const std::int32_t> ids, positions;  ///< [T]; positions are absolute
  std::span<const std::int32_t> sequence;        ///< [T], rising: which of the B sequences
  std::span<const std::int32_t> rows;            ///< [R], tokens whose logits are wanted
  /// [T], 1: a token of a prompt that the target multiplies otherwise than others (TargetFacts.long_prompt); or
  /// nothing, for none. What decides is the prompt, never the step, so that a prompt cut anyhow gives the same bits.
  std::span<const std::uint8_t> prompt = {};
  std::span<const std::int32_t> kv_length;  ///< [B], positions of each sequence after this step
  /// [KV groups][B][table_stride], blocks of each group's pool; anything where a window does not reach.
  std::span<const std::int32_t> block_table;
  std::size_t table_stride = 0;
  /// Made in this order before anything of the step is written: a block may be the source of one and then the target of
  /// another.
  std::span<const BlockCopy> copies = {};
  bool hidden = false;  ///< of `rows` the final norm's rows are wanted, not logits
};

/// What a batch may name.
struct StepLimits {
  std::size_t vocab = 0;
  std::span<const KvRoom> rooms;  ///< of the KV groups
  std::size_t block_tokens = 1;
  std::size_t table_blocks = 0;  ///< of one sequence in the chosen variant
};

/// Where a step's inputs go; each has room for the variant's bounds.
struct StepInputs {
  std::int32_t *ids = nullptr, *positions = nullptr, *sequence = nullptr, *rows = nullptr, *kv_length = nullptr,
               *block_table = nullptr;
  std::size_t table_stride = 0;  ///< entries a sequence has in block_table
  std::size_t group_stride = 0;  ///< entries a KV group has there
};

/// Checks a batch that fits the variant's bounds and copies it. Of a block table the blocks that kv_length reaches and
/// the sequence's first token in the step still sees are looked at and copied; those before are 0. Throws
/// Error(kInternal) when it names tokens, positions or blocks that do not exist.
void take_inputs(const StepBatch& batch, const StepLimits& limits, const StepInputs& to);

/// Is the copy one of `group`?
[[nodiscard]] bool is_copied(const BlockCopy& copy, std::span<const KvRoom> rooms, std::size_t group);

/// Throws Error(kInternal): the batch is larger than every variant of its plan.
[[noreturn]] void refuse_batch(const StepBatch& batch);

/// The first variant that has room for the batch and that `gives` what it wants; plans list the smaller ones first. A
/// Variant has bounds: tokens, rows, sequences. Throws Error(kInternal) when there is none.
template <class Variant, class Gives>
const Variant& choose_variant(const std::vector<Variant>& variants, const StepBatch& batch, Gives gives) {
  for (const auto& variant : variants)
    if (batch.ids.size() <= variant.tokens && batch.rows.size() <= variant.rows &&
        batch.kv_length.size() <= variant.sequences && gives(variant))
      return variant;
  refuse_batch(batch);
}
/// The same where all variants give logits.
template <class Variant>
const Variant& choose_variant(const std::vector<Variant>& variants, const StepBatch& batch) {
  return choose_variant(variants, batch, [&](const Variant&) { return !batch.hidden; });
}

}  // namespace forge::runtime
