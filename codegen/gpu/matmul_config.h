#pragma once
// How a matmul by rows is cut up (kernels/gpu/matmul_rows.h), by type, shape, number of tokens and target.

#include <cstdint>

#include "codegen/gpu/epilogue_source.h"
#include "codegen/gpu/kernel_text.h"
#include "codegen/gpu/targets.h"
#include "codegen/gpu/tuning.h"
#include "kernels/quant/dtype.h"

namespace forge::codegen {

struct MatmulConfig {
  std::int64_t tokens = 1;  ///< a tile
  std::int64_t waves = 8, waves_per_row = 1, lanes_per_row = 32, rows_per_team = 1, units_ahead = 2;
  [[nodiscard]] std::int64_t block_rows(int wave) const {
    return waves / waves_per_row * (wave / lanes_per_row) * rows_per_team;
  }
  /// As constants of the kernel's configuration.
  void write_to(ConfigText& out) const;
};

/// Precondition: the type has kernels, tokens is at most 16 or a multiple of 16.
MatmulConfig choose_matmul(const GpuTarget& target, DType weight, std::int64_t rows, std::int64_t k,
                           std::int64_t tokens, const EpilogueShape& shape, const Tuning& tuning);

}  // namespace forge::codegen
