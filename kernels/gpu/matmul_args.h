#pragma once
// What the kernels that multiply by a weight have in common, by rows (matmul_rows.h) or by matrix instructions
// (matmul_tiles.h).
// Experts: the weight has kColumns rows for each expert, one expert behind the other. Rows of out are slots, each a
// token and one of its kSlots experts; rows of x are slots or the tokens that they share.

#include "kernels/gpu/codes.h"
#include "kernels/gpu/step_io.h"

namespace forge::gpu {

struct MatmulCommon {
  static constexpr int kTokensTotal = 1;      ///< rows of x and out
  static constexpr int kCount = kTokenCount;  ///< what tells how many are real
  static constexpr int kSlots = 0;            ///< experts of a token; 0: one weight for all
  static constexpr int kColumns = 0;          ///< an expert's rows of the weight
  static constexpr bool kSharedX = false;     ///< a token's slots have one row of x
};

/// weights: layout planes. x: [rows of x][W::kXRowBytes] bytes. All 16-byte aligned.
template <class E, bool HasExperts>
struct MatmulArgs {
  const u8* weights;
  const u8* x;
  const i32* counts;
  typename E::Args epilogue;
};
template <class E>
struct MatmulArgs<E, true> {
  const u8* weights;
  const u8* x;
  const i32* counts;
  const i32* experts;  ///< of each slot
  typename E::Args epilogue;
};

}  // namespace forge::gpu
