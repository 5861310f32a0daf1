#pragma once
// A matmul with an epilogue, for the tests of GEMV and matrix-instruction kernels: random weights and activations,
// simple and fused epilogues, and the comparison with products in f64.

#include <string>

#include "tests/gpu_host/kernel_bench.h"

namespace forge::gpu_host {

/// The epilogue applied to a sum v: stores v; stores residual + v with its squares and quantised rows, after
/// scaling by 1/rms from partial sums; or stores silu(gate) * up, where gate and up columns alternate every 16.
enum class MatmulKind { kStore, kResidual, kGlu };
inline constexpr MatmulKind kMatmulKinds[] = {MatmulKind::kStore, MatmulKind::kResidual, MatmulKind::kGlu};

struct MatmulProblem {
  DType type;
  int n, k;
  int total, real;  ///< rows in memory, and rows that hold real tokens
  MatmulKind kind;
  /// F32: MatmulRows. Else MatmulTiles: x has numbers of this type, F16, F16A or BF16, and so has what is written.
  DType tiles = DType::kF32;
  int terms = 1;                   ///< of quantised rows, those that are read and those that are written, without tiles
  int counters = 0, partials = 0;  ///< MatmulTiles: counters, and sums of all blocks, where several blocks share k
  bool totals = false;             ///< MatmulTiles: the first partial sum of squares becomes the sum of all
  /// The format of the rows that are written.
  [[nodiscard]] int format() const { return tiles == DType::kF32 ? terms : codegen::row_format(tiles); }
  /// Columns of the result.
  [[nodiscard]] int results() const { return kind == MatmulKind::kGlu ? n / 2 : n; }
  [[nodiscard]] int parts() const { return kind == MatmulKind::kStore ? 0 : 5; }
};

/// Source text of the epilogue.
std::string epilogue_of(const MatmulProblem& problem);

/// Runs a kernel that takes MatmulArgs or TilesArgs once per lane order and checks everything that it writes.
void check_matmul(const MatmulProblem& problem, const Kernel& kernel);

}  // namespace forge::gpu_host
