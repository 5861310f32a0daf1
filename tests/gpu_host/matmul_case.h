#pragma once
// A matmul with an epilogue, as the tests of the kernels that multiply share it: random weights and activations, plain
// and busy epilogues, and the check against products in f64.

#include <string>

#include "tests/gpu_host/kernel_bench.h"

namespace forge::gpu_host {

/// What the epilogue makes of a sum v: v; with 1/rms from partial sums the residual + v, its squares and quantised
/// rows; or silu(gate) * up of columns that alternate every 16.
enum class MatmulKind { kStore, kResidual, kGlu };
inline constexpr MatmulKind kMatmulKinds[] = {MatmulKind::kStore, MatmulKind::kResidual, MatmulKind::kGlu};

struct MatmulProblem {
  DType type;
  int n, k;
  int total, real;  ///< tokens that memory has, and those that count
  MatmulKind kind;
  DType rounded = DType::kF32;  ///< weights and activations are rounded to this: F16, BF16 or not at all
  /// Columns of the result.
  [[nodiscard]] int results() const { return kind == MatmulKind::kGlu ? n / 2 : n; }
  [[nodiscard]] int parts() const { return kind == MatmulKind::kStore ? 0 : 5; }
};

/// The source of its epilogue.
std::string epilogue_of(const MatmulProblem& problem);

/// Runs a kernel with the arguments of MatmulArgs or TilesArgs in each order of lanes and checks all that it writes.
void check_matmul(const MatmulProblem& problem, const Kernel& kernel);

}  // namespace forge::gpu_host
