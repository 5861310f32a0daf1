#pragma once
// Memory layout of a GPU program: six blocks of device memory, each allocated once. This file computes offsets and
// sizes only, so the required memory is known before a device is touched.
//
//   weights   repacked weights | the program's constants
//   arena     intermediates and scratch of the variants
//   state     recurrent state, one area per group: f32 [slots of the executor][layers][floats]
//   KV pool   one area per KV group: for each layer its K plane, f16 [blocks][kv_heads][block_tokens][head_dim], and
//   its
//             V plane, the same with value_dim columns. Groups with a shared row (MLA) have no V planes
//   staging   ring of slots through which weights are loaded (weight_upload.h); has a pinned twin on the host
//   step I/O  counters | inputs of variant 0 | inputs of variant 1 | ... | logits | masks;  has a pinned mirror on the
//             host

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/quant/dtype.h"
#include "runtime/executor.h"
#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

/// Alignment of every array in device memory. It covers the widest cache line, so aligned vector loads never straddle
/// one.
inline constexpr std::size_t kGpuAlignment = 256;
[[nodiscard]] constexpr std::size_t gpu_aligned(std::size_t bytes) {
  return (bytes + kGpuAlignment - 1) / kGpuAlignment * kGpuAlignment;
}

/// Offsets of one variant's inputs in bytes from the start of the step I/O block.
struct StepIoLayout {
  std::size_t counts = 0, sampling = 0, ids = 0, positions = 0, sequence = 0, rows = 0, kv_length = 0, block_table = 0;
  std::size_t state_read = 0, state_write = 0;
  std::size_t table_bytes = 0;  ///< bytes of one KV group's tables
  // The whole range, which is uploaded with one copy.
  std::size_t begin = 0, end = 0;
};

/// Bytes of one block of a KV group in one layer: in the K plane and in the V plane (0 with a shared row).
struct KvPlanes {
  explicit KvPlanes(const plan::KvGroup& group)
      : keys(bytes_of(group, group.head_dim())), values(group.shared_row() ? 0 : bytes_of(group, group.value_dim())) {}
  std::size_t keys, values;
  /// Bytes from the start of the group's area to plane `plane` (2 * layer: K, 2 * layer + 1: V).
  [[nodiscard]] std::size_t begin(std::size_t plane, std::size_t blocks) const {
    return blocks * (plane / 2 * (keys + values) + plane % 2 * keys);
  }

 private:
  static std::size_t bytes_of(const plan::KvGroup& group, std::int64_t columns) {
    return static_cast<std::size_t>(group.kv_heads()) * static_cast<std::size_t>(group.block_tokens()) *
           row_bytes(static_cast<DType>(group.dtype()), static_cast<std::size_t>(columns));
  }
};

/// Offsets and sizes of all blocks.
struct GpuMemory {
  /// `kv_blocks` 0: as many as the program's context and batch require; `state_slots` 0: one for each sequence. Errors:
  /// kPlan when a number is out of range.
  GpuMemory(const plan::ProgramT& program, std::int64_t kv_blocks, std::int64_t state_slots = 0);

  MemoryRequirements need;
  std::size_t constants = 0;              ///< offset in the weights block
  std::size_t kv_blocks = 0;              ///< blocks of context
  std::vector<KvPoolSize> kv_pool_sizes;  ///< pool sizes of the KV groups
  std::vector<std::size_t> kv_groups;     ///< offsets of the groups in the KV pool
  std::vector<std::size_t> states;        ///< offsets of the recurrent groups in the block of states
  std::vector<StepIoLayout> inputs;       ///< one per variant
  std::size_t counters_bytes = 0;         ///< the counters are at the start of the step I/O block
  std::size_t inputs_end = 0;             ///< everything before is mirrored in pinned memory
  std::size_t logits = 0, logits_bytes = 0;
  std::size_t masks = 0, mask_bytes = 0;  ///< of allowed tokens: offset of the first row's, bytes of each
  std::size_t sampled_bytes = 0;          ///< ring of sampled tokens, in pinned memory only
  std::size_t staging_slot = 0;           ///< bytes of one slot of the staging ring
};

}  // namespace forge::runtime
