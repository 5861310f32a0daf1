#pragma once
// What steps of GPU programs mean beside plan.fbs: the step inputs that code generation names and runtime/gpu fills.
// Part of the plan format; a new meaning of a number raises kPlanVersion.

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/step_io.h"

namespace forge::plan {

/// Indices of Space::Input beyond ir::InputKind's, whose tensors are i32: ids [T], positions [T], sequence [T],
/// rows [R], kv_length [B], block_table [B, Bounds.table_blocks] of the KV group that the reference's offset says, but
/// for the last one: embeddings f32 [T, Program.input_width]. T, R and B are the variant's bounds. Padding tokens have
/// id 0, position -1, sequence 0.
enum class GpuInput : std::uint16_t {
  kCounts = 16,    ///< i32[4], gpu::Count: what of the bounds is real in this step
  kSampling = 17,  ///< gpu::SamplingRow[R]
  kSampled = 18,   ///< i32[gpu::kSampledRing][R] in pinned host memory: the token of each row, a line a step
};

/// The kernel of a Repack takes
///   { destination, staged rows, i64 first row of the slice in the source, i64 rows of the slice,
///     i64 row_first, i64 unit, i64 stride }
/// and runs with a grid of rows of the slice * blocks_per_row.

}  // namespace forge::plan
