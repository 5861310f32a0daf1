#pragma once
// A step's input as callers give it, and the checks that every executor makes of it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace forge::runtime {

/// The contents of block `from`, in every layer, go to block `to`.
struct BlockCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

/// One step's input: T tokens of B sequences. Spans are read during the call only.
struct StepBatch {
  std::span<const std::int32_t> ids, positions;  ///< [T]; positions are absolute
  std::span<const std::int32_t> sequence;        ///< [T], rising: which of the B sequences
  std::span<const std::int32_t> rows;            ///< [R], tokens whose logits are wanted
  std::span<const std::int32_t> kv_length;       ///< [B], positions of each sequence after this step
  std::span<const std::int32_t> block_table;     ///< [B][table_stride], blocks of the KV pool
  std::size_t table_stride = 0;
  /// Made in this order before anything of the step is written: a block may be the source of one and then the target of
  /// another.
  std::span<const BlockCopy> copies = {};
};

/// What a batch may name.
struct StepLimits {
  std::size_t vocab = 0;
  std::size_t kv_blocks = 0, block_tokens = 1;  ///< of the pool
  std::size_t table_blocks = 0;                 ///< of one sequence in the chosen variant
};

/// Where a step's inputs go; each has room for the variant's bounds.
struct StepInputs {
  std::int32_t *ids = nullptr, *positions = nullptr, *sequence = nullptr, *rows = nullptr, *kv_length = nullptr,
               *block_table = nullptr;
  std::size_t table_stride = 0;  ///< entries a sequence has in block_table
};

/// Checks a batch that fits the variant's bounds and copies it. Of a block table the blocks that kv_length reaches are
/// looked at and copied. Throws Error(kInternal) when it names tokens, positions or blocks that do not exist.
void take_inputs(const StepBatch& batch, const StepLimits& limits, const StepInputs& to);

/// Throws Error(kInternal): the batch is larger than every variant of its plan.
[[noreturn]] void refuse_batch(const StepBatch& batch);

/// The first variant that has room for the batch; plans list the smaller ones first. A Variant has bounds: tokens,
/// rows, sequences. Throws Error(kInternal) when none has room.
template <class Variant>
const Variant& choose_variant(const std::vector<Variant>& variants, const StepBatch& batch) {
  for (const auto& variant : variants)
    if (batch.ids.size() <= variant.tokens && batch.rows.size() <= variant.rows &&
        batch.kv_length.size() <= variant.sequences)
      return variant;
  refuse_batch(batch);
}

}  // namespace forge::runtime
