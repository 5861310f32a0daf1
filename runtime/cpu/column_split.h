#pragma once
// Splits a step of few rows (decode) by columns for the worker threads. executor.cc calls it once per step when a plan
// is opened; run_tile.cc runs the pieces.

#include <cstddef>
#include <vector>

#include "runtime/cpu/cpu_program.h"

namespace forge::runtime {

/// Steps of up to this many rows are split by columns: a register tile of the matmuls covers so many rows, so the
/// weights are read once.
inline constexpr std::size_t kSplitRows = cpu::kMatmulTokens;

/// Cuts all columns of all sections into pieces of whole units (TileSection::unit), in order; each column is in one
/// piece. One thread: pieces are as wide as a quarter of the tile scratch allows for kSplitRows rows. Several threads:
/// a piece is a share of the columns that are left, so pieces shrink towards the end, to one unit or as many as make 32
/// columns. Threads then read long runs of weights first and end together, even if one is slow or late:
///
///   |        piece 0        |    piece 1    |  piece 2  | ... | p | p | p |   columns ->
///
/// A column's sums do not depend on its piece, so results do not depend on the number of threads. Source: guided
/// self-scheduling (Polychronopoulos and Kuck, IEEE Transactions on Computers 36(12), 1987).
std::vector<TilePiece> split_columns(const std::vector<TileSection>& sections, std::size_t threads);

}  // namespace forge::runtime
