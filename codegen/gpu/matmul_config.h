#pragma once
// Chooses the configuration of a matmul kernel (work split and blocking) by weight type, shape, number of tokens and
// target: kernels/gpu/matmul_rows.h without matrix instructions, kernels/gpu/matmul_tiles.h and matmul_strips.h with
// them.

#include <cstdint>
#include <optional>

#include "codegen/gpu/source/epilogue_source.h"
#include "codegen/gpu/source/kernel_text.h"
#include "codegen/gpu/targets.h"
#include "codegen/gpu/tuning.h"
#include "kernels/quant/dtype.h"

namespace forge::codegen {

/// The configuration of MatmulRows; MatmulDefaults in matmul_rows.h has the meaning of the fields.
struct MatmulConfig {
  std::int64_t tokens = 1;  ///< tokens of a tile
  std::int64_t waves = 8, waves_per_row = 1, lanes_per_row = 32, rows_per_team = 1, units_ahead = 2;
  std::int64_t summed = 1;  ///< slots of a token that waves of a block sum
  /// Weight rows of a block, on a target with this wave size.
  [[nodiscard]] std::int64_t block_rows(int wave) const {
    return waves / (waves_per_row * summed) * (wave / lanes_per_row) * rows_per_team;
  }
  /// Makes a configuration for slots that of blocks whose waves sum `slots` slots of a token. Precondition: a block
  /// can have so many waves.
  void sum_slots(const GpuTarget& target, std::int64_t slots, const EpilogueShape& shape, const Tuning& tuning);
  /// Changes the split so that a team has one row, for a batched matmul whose heads have few columns. multiple: of
  /// columns that a block must have.
  void use_small_teams(int wave, std::int64_t multiple);
  /// Makes a configuration for one token that of `tokens`, with the same order of each sum: lanes and waves of a row
  /// stay, and a tile has as many tokens as registers for their sums. Precondition: that of choose_matmul.
  void take_tokens(const GpuTarget& target, DType weight, std::int64_t tokens, const Tuning& tuning);
  /// Writes the fields as constants of the kernel's configuration.
  void write_to(ConfigText& out) const;
};

/// kWholeRows: the last block goes on with whole rows of results (kernels/gpu/matmul_norm.h). kSlots: a tile is a slot,
/// whose expert is known only after the wait for the router. kPlain: all others, also a router's matmul.
enum class MatmulUse : std::uint8_t { kPlain, kWholeRows, kSlots };

/// Configuration for a weight [rows][k] and `tokens` rows of x. Precondition: the type has GPU kernels, and tokens is
/// at most 16 or a multiple of 16.
MatmulConfig choose_matmul(const GpuTarget& target, DType weight, std::int64_t rows, std::int64_t k,
                           std::int64_t tokens, const EpilogueShape& shape, const Tuning& tuning,
                           MatmulUse use = MatmulUse::kPlain);

/// True if the target has matrix instructions that the tuning allows. Tuning key: matrix.
bool may_use_matrix_instructions(const GpuTarget& target, const Tuning& tuning);
/// True if variants for this many tokens are for prefill and use matrix instructions in all kernels, where shapes allow
/// it. Tuning key: matrix.
bool uses_matrix_instructions(const GpuTarget& target, std::int64_t tokens, const Tuning& tuning);

/// The configuration of MatmulTiles, or of MatmulStrips for few tokens; TilesDefaults in tile_block.h and
/// StripsDefaults in matmul_strips.h have the meaning of the fields.
struct TilesConfig {
  std::int64_t waves_down = 2, waves_across = 2;  ///< waves of a block: along columns, along tokens
  std::int64_t tiles_down = 1, tiles_across = 1;  ///< tiles of a wave: along columns, along tokens
  std::int64_t rows = 0, tokens = 0;              ///< of a block: columns of the result, tokens
  std::int64_t slabs = 1;                         ///< slabs of 32 columns of k in a step
  std::int64_t stages = 2;                        ///< buffers in shared memory, each for a step
  bool strips = false;                            ///< MatmulStrips
  std::int64_t ahead = 1;                         ///< MatmulStrips: steps of weights that are under way
  std::int64_t tokens_together = 16;              ///< tokens whose sums the epilogue finds in shared memory at once
  std::int64_t splits = 1;                        ///< blocks that share k
  std::int64_t lds_bytes = 0;    ///< shared memory that the launch gives; 0: the kernel declares its own
  std::int64_t blocks = 0;       ///< blocks of the grid
  std::int64_t unit_blocks = 0;  ///< blocks that a unit should hold at once; 0: the compiler decides
  [[nodiscard]] std::int64_t waves() const { return waves_down * waves_across; }
  /// Writes the kernel's names, and the fields as constants of its configuration.
  void write_to(KernelText& out) const;
};

/// Configuration for a weight [experts][rows][k] and tokens of `slots` experts each (experts 0 and slots 1: one weight
/// for all tokens). Nothing if MatmulRows must be used: few tokens, few columns, a weight type or target without matrix
/// instructions, or an epilogue that does not allow the blocks. Errors: kUsage for tuning that does not fit.
std::optional<TilesConfig> choose_tiles(const GpuTarget& target, DType weight, std::int64_t rows, std::int64_t k,
                                        std::int64_t tokens, std::int64_t slots, std::int64_t experts,
                                        const EpilogueShape& shape, const Tuning& tuning);

/// The same of a matmul in a step of many tokens of which only few rows are wanted (those of logits), at most `rows`:
/// blocks of 16 of them, most of which find none; so most steps read the weights once. columns: of the result.
std::optional<TilesConfig> choose_few_rows(const GpuTarget& target, DType weight, std::int64_t columns, std::int64_t k,
                                           std::int64_t rows, const EpilogueShape& shape, const Tuning& tuning);

}  // namespace forge::codegen
