#pragma once
// Where everything of a GPU program lies: five blocks, each allocated once. Offsets and sizes only; nothing here
// touches a device, so the need is known before one does.
//
//   weights   repacked weights, then the program's constants
//   arena     intermediates and scratch
//   KV pool   group after group: f16 [layers][K, V][blocks of the group][kv_heads][block_tokens][head_dim]
//   staging   the ring that weights come through (weight_upload.h), with its twin in pinned memory
//   step I/O  counters, the inputs of each variant, logits; with a pinned mirror of inputs and logits

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/executor.h"
#include "runtime/plan/plan_generated.h"

namespace forge::runtime {

/// Every array begins on a line of the widest cache, so that any aligned load of it is one.
inline constexpr std::size_t kGpuAlignment = 256;
[[nodiscard]] constexpr std::size_t gpu_aligned(std::size_t bytes) {
  return (bytes + kGpuAlignment - 1) / kGpuAlignment * kGpuAlignment;
}

/// A variant's inputs in the step I/O block; offsets in bytes from the block's start.
struct StepIoLayout {
  std::size_t counts = 0, sampling = 0, ids = 0, positions = 0, sequence = 0, rows = 0, kv_length = 0, block_table = 0;
  std::size_t table_bytes = 0;  ///< of one KV group in block_table
  std::size_t begin = 0, end = 0;
};

struct GpuMemory {
  /// `kv_blocks` 0: as many as context and batch of the program take. Errors: kPlan for absurd numbers.
  GpuMemory(const plan::ProgramT& program, std::int64_t kv_blocks);

  MemoryNeed need;
  std::size_t constants = 0;           ///< in the weights block
  std::size_t kv_blocks = 0;           ///< of context
  std::vector<KvRoom> kv_rooms;        ///< of the groups
  std::vector<std::size_t> kv_groups;  ///< in the KV pool
  std::vector<StepIoLayout> inputs;    ///< one a variant
  std::size_t counters_bytes = 0;      ///< at the start of the step I/O block
  std::size_t inputs_end = 0;          ///< what lies before is mirrored in pinned memory
  std::size_t logits = 0, logits_bytes = 0;
  std::size_t sampled_bytes = 0;  ///< the ring of tokens: pinned memory only
  std::size_t staging_slot = 0;   ///< bytes of one slot of the ring
};

}  // namespace forge::runtime
