#pragma once
// Sizes on which the choosers for GPUs, the generated sources and the kernels must agree.

#include <cstdint>

namespace forge::codegen {

/// Tokens of the largest tile without matrix instructions, and the granularity in which tokens past a step's real ones
/// are skipped. Equal to the kernels' kTokenTile (kernels/gpu/tile.h).
inline constexpr std::int64_t kTokenTile = 16;
/// In a merged weight, gate and up alternate every 16 columns, so that a group of 16 results needs one run of each.
inline constexpr std::int64_t kGluUnit = 16;
/// A block makes results in groups of 16, so the parts of a merged weight must be multiples of 16 columns.
inline constexpr std::int64_t kResultColumns = 16;

inline constexpr std::int64_t kGpuKvBlockTokens = 32;  ///< tokens of a KV block

/// Rows of a tile of matrix instructions on all targets: columns of a matmul's result, or queries of one head.
inline constexpr std::int64_t kTileRows = 16;
/// The fewest tokens for which --tune may ask for matrix instructions (matrix_tokens): one token has no use for them.
inline constexpr std::int64_t kTiledTokensLeast = 2;
/// The most tokens, and slots of an average expert, of steps whose weights go straight to registers (MatmulStrips).
inline constexpr std::int64_t kStripsTokensMost = 64, kStripsSlotsMost = 24;
/// Variants for at least this many tokens are for prefill and may use matrix instructions.
inline constexpr std::int64_t kPromptTokensLeast = 128;
/// 1 if they do so unless --tune says otherwise (matrix=0).
inline constexpr std::int64_t kMatrixByDefault = 1;

}  // namespace forge::codegen
