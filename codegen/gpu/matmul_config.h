#pragma once
// How a matmul is cut up, by rows (kernels/gpu/matmul_rows.h) or by matrix instructions (kernels/gpu/matmul_tiles.h),
// by type, shape, number of tokens and target.

#include <cstdint>
#include <optional>

#include "codegen/gpu/source/epilogue_source.h"
#include "codegen/gpu/source/kernel_text.h"
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

/// Do steps with room for so many tokens multiply by matrix instructions, where shapes allow it? Tuning: matrix.
bool takes_matrix_instructions(const GpuTarget& target, std::int64_t tokens, const Tuning& tuning);

/// Of a matmul by matrix instructions.
struct TilesConfig {
  std::int64_t waves_down = 2, waves_across = 2;  ///< of a block: along columns, along tokens
  std::int64_t tiles_down = 1, tiles_across = 1;  ///< of a wave
  std::int64_t rows = 0, tokens = 0;              ///< of a block, columns of the result and tokens
  std::int64_t steps_ahead = 1;                   ///< that loads are issued before their step
  std::int64_t blocks = 0;                        ///< of the grid
  std::int64_t unit_blocks = 0;                   ///< that a unit should hold at once; 0: as the compiler sees fit
  [[nodiscard]] std::int64_t waves() const { return waves_down * waves_across; }
  void write_to(ConfigText& out) const;
};

/// For a weight of `experts` times [rows][k], each token going to `slots` of them (none and 1: one weight for all).
/// None where it goes by rows: few tokens, few columns, a type or a target without, an epilogue whose columns do not
/// fit.
std::optional<TilesConfig> choose_tiles(const GpuTarget& target, DType weight, std::int64_t rows, std::int64_t k,
                                        std::int64_t tokens, std::int64_t slots, std::int64_t experts,
                                        const EpilogueShape& shape, const Tuning& tuning);

}  // namespace forge::codegen
