#pragma once
// The size of MatmulTiles' blocks, and how many share k: a cost model of mma.sync, measured on a card, and rules for
// AMD's matrix instructions and for experts.

#include <cstdint>
#include <optional>

#include "codegen/gpu/source/epilogue_source.h"
#include "codegen/gpu/targets.h"

namespace forge::codegen {

/// Columns and tokens of a block.
struct TileSize {
  std::int64_t rows, tokens;
};

/// What choose_tiles decides on.
struct TilesProblem {
  std::int64_t rows, k, tokens, slots, experts;
  [[nodiscard]] std::int64_t rows_of_out() const { return tokens * slots; }
  /// Blocks of the grid. Each expert may have one tile that is not full.
  [[nodiscard]] std::int64_t blocks(const TileSize& size) const {
    const auto token_tiles = experts > 0 ? rows_of_out() / size.tokens + std::min(experts, rows_of_out())
                                         : (rows_of_out() + size.tokens - 1) / size.tokens;
    return (rows + size.rows - 1) / size.rows * token_tiles;
  }
};

/// A size, and how many blocks share k.
struct SplitSize {
  TileSize size;
  std::int64_t splits = 1;
};

/// Columns, and tokens, of a wave in large blocks of AMD's GPUs: each fragment that it reads from shared memory is in
/// four products, and each weight that a block dequantises in those of 128 tokens.
inline constexpr std::int64_t kWaveTile = 64;

/// True if the epilogue allows blocks of this size.
bool fits(const TileSize& size, const TilesProblem& problem, const EpilogueShape& shape);

/// The block size of MatmulTiles, and the parts of k; nothing if none fits. Large blocks read fewer bytes per product;
/// but a grid of few blocks leaves units idle, and with experts that few slots share, large tiles stay half empty.
std::optional<SplitSize> choose_size(const GpuTarget& target, const TilesProblem& problem, const EpilogueShape& shape);

}  // namespace forge::codegen
