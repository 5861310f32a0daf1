#pragma once
// Kernels that measure what a card reaches (kernels/gpu/card_rates.h), and the results that they must leave in memory.
// Code with access to a device runs them (session/card_rates.h).

#include <cstdint>
#include <vector>

#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"

namespace forge::codegen {

/// A kernel whose launch gives the number of blocks.
struct RateKernel {
  KernelSource source;
  std::uint32_t threads = 0;  ///< of a block
};

/// The kernel that reads memory; its parameter is gpu::ReadRateArgs.
[[nodiscard]] RateKernel read_rate_kernel(const GpuTarget& target);

/// The kernel of matrix instructions; its parameter is gpu::MatrixRateArgs. Only for targets that have them.
[[nodiscard]] RateKernel matrix_rate_kernel(const GpuTarget& target);
/// Columns of a tile of sums.
[[nodiscard]] int matrix_rate_columns(const GpuTarget& target);
/// FLOPs of one wave.
[[nodiscard]] double matrix_rate_flops(const GpuTarget& target, std::int64_t rounds);
/// What a wave with this number must store: f32 [gpu::card_rates::kMatrixRows][matrix_rate_columns]. rounds: at most
/// gpu::card_rates::kMatrixRoundsMax, so that sums are exact.
[[nodiscard]] std::vector<float> matrix_rate_sums(const GpuTarget& target, std::int64_t wave, std::int64_t rounds);

}  // namespace forge::codegen
