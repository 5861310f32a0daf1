#pragma once
// The operations of a tile program: what a CPU step does to a tile of float columns that it keeps in registers and L1.
// Drafts of code generation and the executor's decoded programs name them so; in plans they are tables of plan.fbs.

#include <cstdint>

namespace forge::plan {

inline constexpr std::uint32_t kPlanVersion = 8;

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
  kAddVector,
  kMulVector,
  kAddTensor,
  kMulTensor,
  kScale,
  kGlu,        ///< pairs of `unit` gate and `unit` up columns become `unit` columns
  kGluTensor,  ///< act(tile) * rows
  kRope,
  kAddExpertVector,
  kSumExperts,
  kActivate,
  kSoftcap,
  kRmsNorm,
  kLayerNorm,
  // sinks: the tile stays as it is
  kStore,
  kSumSquares,
  kQuantize,
  kStoreK,
  kStoreV,
};

}  // namespace forge::plan
