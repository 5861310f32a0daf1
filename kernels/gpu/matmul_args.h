#pragma once
// Configuration and arguments that both matmul kernels share: GEMV-like (matmul_rows.h) and by matrix instructions
// (matmul_tiles.h).
// Mixture of experts: the weight is [experts][kColumns][k]. A slot is a token and one of its kSlots experts; rows of
// the output are slots, and rows of x are slots, or tokens whose slots share one row (kSharedX). With kSummed rows of
// the output are tokens: the sums of their slots' products, each times its share.
// Batched matmul: the weight is [kHeads][kHeadColumns][k], and head h of the output's columns comes from head h of x:
// x is [tokens][kHeads] rows. What multiplies columns of one head differs only in where its rows of x begin.

#include "kernels/gpu/codes.h"
#include "kernels/gpu/grids.h"
#include "kernels/gpu/step_io.h"

namespace forge::gpu {

struct MatmulCommon {
  static constexpr int kTokensTotal = 1;      ///< rows of the output that memory has
  static constexpr int kCount = kTokenCount;  ///< the Count (step_io.h) that says how many of them are real
  static constexpr int kSlots = 0;            ///< experts of a token; 0: not a mixture of experts
  static constexpr int kColumns = 0;          ///< rows of the weight that belong to one expert
  static constexpr bool kSharedX = false;     ///< the slots of a token share one row of x
  static constexpr bool kSummed = false;      ///< the slots of a token are summed; MatmulRows only
  static constexpr int kShareFloats = 0;      ///< with kSummed: floats from one token's shares to the next's
  static constexpr int kXTerms = 1;           ///< terms of a row of x (activations.h)
  static constexpr int kXFloats = 0;          ///< floats from one row of x to the next; 0: rows of W::kXRowBytes
  static constexpr int kHeads = 1;            ///< rows of x of a token, each of which has columns of its own
  static constexpr int kHeadColumns = 0;      ///< columns of each of them; 0: all
};

/// Bytes from one row of x to the next.
template <class C>
FORGE_DEVICE constexpr u64 x_row_bytes() {
  return C::kXFloats > 0 ? static_cast<u64>(C::kXFloats) * 4 : C::kHeads * C::kXTerms * C::Weight::kXRowBytes;
}
/// Bytes from a token's first row of x to the one that column `column` of the output comes from.
template <class C>
FORGE_DEVICE constexpr u64 x_head_bytes(int column) {
  if constexpr (C::kHeads > 1)
    return static_cast<u64>(column / C::kHeadColumns) * C::kXTerms * C::Weight::kXRowBytes;
  else
    return 0;
}

/// Kernel arguments. weights: in the layout `planes` (kernels/quant/planes.h). x: [rows of x][kXTerms][W::kXRowBytes]
/// bytes.
/// Both are 16-byte aligned. counts: i32[4], indexed by Count. epilogue: see tile.h.
template <class E, bool HasExperts, bool Summed = false>
struct MatmulArgs {
  const u8* weights;
  const u8* x;
  const i32* counts;
  typename E::Args epilogue;
};
/// The same for matmul_tiles.h. x: [rows of x][k] 16-bit numbers (tile_rows.h). totals: sums of
/// squares of the rows, kTotalStride floats apart (SumSquares in tile_rows.h), read if the epilogue has squares.
/// partials: used if several blocks share k; counters: then, and if the epilogue has kSquaresOut.
struct TilesPointers {
  const u8* weights;
  const u8* x;
  const float* totals;
  float* partials;  ///< [tiles][kSplits][sums of a block], 16-byte aligned
  u32* counters;    ///< [tiles], and behind them [tiles of tokens]; 0
  const i32* counts;
};
template <class E, bool HasExperts>
struct TilesArgs : TilesPointers {
  typename E::Args epilogue;
};
template <class E>
struct TilesArgs<E, true> : TilesPointers {
  const i32* sorted;  ///< the slots by expert (SortSlots in slot_tiles.h)
  typename E::Args epilogue;
};
template <class E>
struct MatmulArgs<E, true, false> {
  const u8* weights;
  const u8* x;
  const i32* counts;
  const i32* experts;  ///< [slots]: the expert of each slot
  typename E::Args epilogue;
};
template <class E>
struct MatmulArgs<E, true, true> {
  const u8* weights;
  const u8* x;
  const i32* counts;
  const i32* experts;   ///< [slots]
  const float* shares;  ///< [tokens], rows of kShareFloats: the share of each slot
  typename E::Args epilogue;
};

}  // namespace forge::gpu
