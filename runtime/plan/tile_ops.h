#pragma once
// The operations of tile programs: the CPU back-end's fused steps, which keep a tile of f32 columns in registers and
// L1. Used by codegen/cpu and by the executor's decoded programs; in plan files each is a table of plan.fbs, which
// describes them.

#include <cstddef>
#include <cstdint>

namespace forge::plan {

/// Kinds of operations, in the order source, transform, sink.
enum class TileOpKind : std::uint16_t {
  // Sources: the first operation of a section.
  kMatmul,
  kEmbed,
  kLoad,
  kGather,
  kExpertMatmul,  ///< rows are slots (one per token and chosen expert) until kSumExperts adds them up
  kExpertRows,    ///< sum of share * row over a token's slots
  // Transforms.
  kInvRms,
  kUnary,   ///< f(tile), see kernels/elementwise
  kBinary,  ///< f(tile, rows), or f(tile, one row for all rows)
  kPairs,   ///< GLU: `unit` columns x and `unit` columns y become `unit` columns f(x, y)
  kRope,
  kHadamard,  ///< GPUs only
  kAddExpertVector,
  kScaleExpert,
  kSumExperts,
  kRmsNorm,
  kLayerNorm,
  // Sinks: the tile is unchanged.
  kStore,
  kSumSquares,
  kQuantize,
  kStoreK,
  kStoreV,
  kCount_
};

inline constexpr std::size_t kTileOpKinds = static_cast<std::size_t>(TileOpKind::kCount_);

}  // namespace forge::plan
