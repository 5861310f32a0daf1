#pragma once
// Questions about the operations of a tile draft that the generator of epilogues asks.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "codegen/tile_draft.h"

namespace forge::codegen {

/// Operations that read two columns of the tile: RoPE's pairs, and the gate and up columns of a GLU.
inline bool is_combine(plan::TileOpKind kind) {
  return kind == plan::TileOpKind::kRope || kind == plan::TileOpKind::kPairs;
}

/// True if a lane computes the operation's result from the tile and memory alone. Such operations may run while
/// neighbouring lanes are in another section.
inline bool is_lane_local(plan::TileOpKind kind) {
  return kind == plan::TileOpKind::kInvRms || kind == plan::TileOpKind::kUnary || kind == plan::TileOpKind::kBinary ||
         kind == plan::TileOpKind::kAddExpertVector || kind == plan::TileOpKind::kScaleExpert ||
         kind == plan::TileOpKind::kStore;
}
/// True if the section may begin and end at any column of a block.
inline bool is_lane_local(const DraftSection& section) {
  return std::ranges::all_of(section.ops, [](const auto& op) { return is_lane_local(op.kind); });
}
/// True if blocks may cross the border behind section i.
inline bool is_free_border(const TileDraft& draft, std::size_t i) {
  return is_lane_local(draft.sections[i]) && is_lane_local(draft.sections[i + 1]);
}

using Chain = std::span<const DraftOp>;

/// The chains of operations that start at the section's columns: one, or, where a branch begins with the first
/// operation, one for each branch. Branches further on are within a chain.
inline std::vector<Chain> chains_of(const DraftSection& section) {
  const Chain ops(section.ops);
  std::vector<Chain> chains;
  std::size_t first = 0;
  for (std::size_t i = 1; i < ops.size(); ++i) {
    if (ops[0].keeps < 0 || ops[i].from != ops[0].keeps) continue;
    chains.push_back(ops.subspan(first, i - first));
    first = i;
  }
  chains.push_back(ops.subspan(first));
  return chains;
}

/// The norms of the block's own columns, in order: positions in the chain.
inline std::vector<std::size_t> norms_of(Chain ops) {
  std::vector<std::size_t> norms;
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (ops[i].kind == plan::TileOpKind::kRmsNorm) norms.push_back(i);
  return norms;
}

/// True if norm number `at` of a chain is of another value than the source's; stores of that may come before it.
inline bool is_staged(Chain ops, std::size_t at) {
  return std::ranges::any_of(ops.first(at), [](const auto& op) { return op.kind < plan::TileOpKind::kStore; });
}

inline bool has_combine(Chain ops) {
  return std::ranges::any_of(ops, [](const auto& op) { return is_combine(op.kind); });
}

}  // namespace forge::codegen
