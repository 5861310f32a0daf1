#pragma once
// Sizes that what is chosen for GPUs and the sources that are generated for them must agree on.

#include <cstdint>

namespace forge::codegen {

/// Tokens of the largest tile, and the unit in which tiles past the step's tokens are skipped (kernels/gpu/tile.h has
/// the kernels' own).
inline constexpr std::int64_t kTokenTile = 16;
/// Gate and up of a merged weight alternate every so many columns, for a block of results is made from one of each.
inline constexpr std::int64_t kGluUnit = 16;
/// A block makes a token's results in groups of so many, and parts of a merged weight are whole groups.
inline constexpr std::int64_t kResultColumns = 16;

/// Rows of a tile of matrix instructions, whoever's: columns of a matmul's result, or queries of one head.
inline constexpr std::int64_t kTileRows = 16;
/// Variants with room for so many tokens are a prompt's, and may multiply by matrix instructions where there are any.
inline constexpr std::int64_t kPromptTokensLeast = 128;
/// Do they, where --tune does not say (matrix=0, matrix=1)?
inline constexpr std::int64_t kMatrixByDefault = 1;

}  // namespace forge::codegen
