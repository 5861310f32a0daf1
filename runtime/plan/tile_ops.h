#pragma once
// The operations of a tile program: what a CPU step does to a tile of float columns that it keeps in registers and L1.
// Drafts of code generation and the executor's decoded programs name them so; in plans they are tables of plan.fbs.

#include <cstddef>
#include <cstdint>

namespace forge::plan {

enum class TileOpKind : std::uint16_t {
  // sources: first op of a section
  kMatmul,
  kEmbed,
  kLoad,
  kGather,
  kExpertMatmul,  ///< rows are slots, as many a token as it has experts, until kSumExperts makes them tokens
  kExpertRows,    ///< sums of share * row
  // transforms
  kInvRms,
  kUnary,   ///< f(tile), kernels/elementwise
  kBinary,  ///< f(tile, rows), or f(tile, one row for all)
  kPairs,   ///< pairs of `unit` columns x and `unit` columns y become `unit` columns f(x, y): a GLU's gate and up
  kRope,
  kAddExpertVector,
  kSumExperts,
  kRmsNorm,
  kLayerNorm,
  // sinks: the tile stays as it is
  kStore,
  kSumSquares,
  kQuantize,
  kStoreK,
  kStoreV,
  kCount_
};

inline constexpr std::size_t kTileOpKinds = static_cast<std::size_t>(TileOpKind::kCount_);

}  // namespace forge::plan
