#pragma once
// The step inputs of GPU programs and the arguments of repack kernels: what numbers in a plan's GPU steps mean beyond
// plan.fbs. Written by codegen/gpu, read by runtime/gpu. Part of the plan format: a change of meaning raises
// kPlanVersion.

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/step_io.h"

namespace forge::plan {

/// Indices of operands in Space::Input. Numbers below 16 are those of ir::InputKind, i32 tensors except for the last:
///
///   0 ids [T]   1 positions [T]   2 sequence [T]   3 rows [R]   4 kv_length [B]
///   5 block_table [B, Bounds.table_blocks], of the KV group that the operand's offset names
///   6 embeddings, f32 [T, Program.input_width]
///   7 state_read [B]   8 state_write [B]: slots of recurrent state
///
/// An operand in Space::Recurrent is the layer's state in slot 0. From one slot to the next there are as many bytes as
/// a slot has in all layers of its group.
///
/// T, R and B are the variant's bounds. Padding tokens have id 0, position -1, sequence 0.
enum class GpuInput : std::uint16_t {
  /// i32[4], indexed by gpu::Count: numbers of real tokens, rows and sequences, and of steps sampled so far
  kCounts = 16,
  kSampling = 17,  ///< gpu::SamplingRow[R]: sampling parameters of each row
  kSampled = 18,   ///< i32[gpu::kSampledRing][R] in pinned host memory: sampled tokens, one line per step
  /// u32[R][ceil(vocab / 32)]: tokens that rows with SamplingRow::masked may choose, bit t % 32 of word t / 32. The
  /// same
  /// memory in all variants
  kMasks = 19,
};

/// Argument struct of a Repack's kernel, 8 bytes per member:
///
///   { destination address, address of the staged rows, first row of the slice in the source, rows in the slice,
///     row_first, unit, stride }       the last three as in plan.fbs
///
/// Its grid has (rows in the slice) * blocks_per_row blocks.

}  // namespace forge::plan
