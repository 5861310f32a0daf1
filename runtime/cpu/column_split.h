#pragma once
// How a step of few rows is cut into columns for threads.

#include <cstddef>
#include <vector>

#include "runtime/cpu/cpu_program.h"

namespace forge::runtime {

/// Steps of up to so many rows are cut this way: the rows that one pass over the weights serves.
inline constexpr std::size_t kSplitRows = cpu::kMatmulTokens;

/// All columns of all sections, each once, in whole units (TileSection::unit), in order. With one thread pieces are as
/// wide as a quarter of the scratch allows for kSplitRows rows. With more, a piece is a share of what is left, so
/// pieces shrink to one unit (or as many as make 32 columns): a thread reads long runs of weights, and all threads end
/// together even if one of them is slow or late. What a column's sums are does not depend on its piece. Source: guided
/// self-scheduling (Polychronopoulos and Kuck, IEEE Transactions on Computers 36(12), 1987).
std::vector<TilePiece> split_columns(const std::vector<TileSection>& sections, std::size_t threads);

}  // namespace forge::runtime
