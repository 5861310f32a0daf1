#pragma once
// What steps of GPU programs mean: the numbers that code generation writes and runtime/gpu reads. Part of the plan
// format; a new meaning of a number raises kPlanVersion.
//
// A step launches the kernel of the code object of its own name with one struct of 8-byte members: the address of each
// of its refs, then each int from kGpuStepInts on. A load step is described at GpuLoadInt.

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/step_io.h"

namespace forge::plan {

/// Indices of Space::Input beyond ir::InputKind's six, whose tensors are i32: ids [T], positions [T], sequence [T],
/// rows [R], kv_length [B], block_table [B, Bounds.table_blocks] of the KV group that the reference's offset says; T, R
/// and B are the variant's bounds. Padding tokens have id 0, position -1, sequence 0.
enum class GpuInput : std::uint16_t {
  kCounts = 16,    ///< i32[4], gpu::Count: what of the bounds is real in this step
  kSampling = 17,  ///< gpu::SamplingRow[R]
  kSampled = 18,   ///< i32[gpu::kSampledRing][R] in pinned host memory: the token of each row, a line a step
};

/// Step.ints of a GPU step.
enum GpuStepInt : std::size_t { kGpuBlocks = 0, kGpuThreads = 1, kGpuLdsBytes = 2, kGpuFlags = 3, kGpuStepInts = 4 };

/// Bits of kGpuFlags.
inline constexpr std::int64_t kGpuWaitsItself = 1;  ///< the kernel waits for its producer: LaunchHints

/// Step.ints of a load step. Its refs are the weight's place (Space::Weights) and Space::File. Whole rows of one source
/// pass through the staging ring; `kernel` runs for each slice of rows, with grid rows * kLoadBlocksPerRow, and takes
///   { destination, staged rows, i64 first row of the slice in the source, i64 rows of the slice,
///     i64 kLoadRowFirst, i64 kLoadUnit, i64 kLoadStride }.
/// Row r of the source becomes row kLoadRowFirst + r / kLoadUnit * kLoadStride + r % kLoadUnit of the weight.
enum GpuLoadInt : std::size_t {
  kLoadBlocksPerRow = 0,
  kLoadThreads = 1,
  // 2 and 3: as in other steps
  kLoadWeight = 4,    ///< index of the weight
  kLoadSource = 5,    ///< index in its sources
  kLoadRowBytes = 6,  ///< of a row in the file
  kLoadRowFirst = 7,
  kLoadUnit = 8,
  kLoadStride = 9,
  kGpuLoadInts = 10,
};

/// Step.kernel of load steps that copy the source's bytes to refs[0] as they are; only kLoadWeight and kLoadSource
/// count.
inline constexpr const char* kGpuCopyKernel = "copy";

}  // namespace forge::plan
