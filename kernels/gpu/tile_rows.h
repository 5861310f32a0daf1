#pragma once
// What a matmul by matrix instructions (matmul_tiles.h) needs of its rows of x and is made once a step where their
// producer has not, so that its blocks need not repeat it: the 16-bit numbers that tiles multiply (a thread makes 16
// columns of a row), and the sum of squares of each row.

#include "kernels/gpu/matmul_args.h"
#include "kernels/gpu/matrix_tile.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// 16 columns of a row of x with this many terms.
template <class Weight, int Terms>
struct HalfOf {
  using Half = typename Weight::XHalf;
};
template <class Weight>
struct HalfOf<Weight, 2> {
  using Half = WideHalf;
};

struct TileRowsDefaults : MatmulCommon {
  static constexpr int kRowsOfToken = 1;  ///< rows of x of a token: heads, or slots that have rows of their own
};

/// C is the matmul's configuration (without its work split): Weight, Tile, kTokensTotal (tokens), kCount, kXTerms,
/// kXFloats, and kRowsOfToken. Rows past the real ones are made up to the end of a tile of 16.
template <class C>
struct TileRows {
  using W = typename C::Weight;
  using Half = typename HalfOf<W, C::kXTerms>::Half;
  using Numbers = NumbersOf<typename C::Tile>;
  static_assert(C::kXTerms == 1 || C::Tile::kF16, "rows of two terms are multiplied in F16");
  static constexpr int kHalvesOfRow = W::kK / 16, kRows = C::kTokensTotal * C::kRowsOfToken;
  static constexpr int kThreads = 256, kBlocks = ceil_div(kRows * kHalvesOfRow, kThreads);
  static_assert(W::kK % 16 == 0, "k must be a multiple of 16");
  static constexpr u64 kRowBytes = C::kXFloats > 0 ? static_cast<u64>(C::kXFloats) * 4 : C::kXTerms* W::kXRowBytes;
  struct Args {
    const u8* x;  ///< rows of activations, kRowBytes apart
    const i32* counts;
    u8* out;  ///< [kRows][kK] 16-bit numbers
  };
  FORGE_DEVICE static void run(const Args& args) {
    const int index = block_id() * kThreads + thread_id(), row = index / kHalvesOfRow, half = index % kHalvesOfRow;
    release_consumers();
    wait_for_producer();
    const int real = whole_tiles(load(args.counts + C::kCount)) * C::kRowsOfToken;
    if (row >= kRows || row >= real) return;
    u32 pairs[8];
    Half::template load<W::kK>(args.x + static_cast<u64>(row) * kRowBytes, half).template expand<Numbers>(pairs);
    U32x4* out = reinterpret_cast<U32x4*>(args.out) + static_cast<u64>(index) * 2;
    out[0] = U32x4{{pairs[0], pairs[1], pairs[2], pairs[3]}};
    out[1] = U32x4{{pairs[4], pairs[5], pairs[6], pairs[7]}};
  }
};

/// Sums of squares of rows from their partial sums: a wave for each token. C has kParts (partial sums of a row),
/// kTotalStride, kTokensTotal (tokens) and kCount.
template <class C>
struct SumSquares {
  static constexpr int kWaves = 8, kThreads = kWaves * kWave, kBlocks = ceil_div(C::kTokensTotal, kWaves);
  struct Args {
    const float* squares;  ///< [kTokensTotal][kParts]
    const i32* counts;
    float* totals;  ///< [kTokensTotal], kTotalStride floats apart; may be the first of the partial sums
  };
  FORGE_DEVICE static void run(const Args& args) {
    const int token = block_id() * kWaves + wave_id();
    release_consumers();
    wait_for_producer();
    if (token >= C::kTokensTotal || idle_tile(args.counts, C::kCount, token)) return;  // scalar: wave_id() is
    float parts[kPartsOfLane<C::kParts>];
    load_squares<C::kParts>(args.squares + token * C::kParts, parts);
    const float total = sum_squares(parts);
    if (lane_id() == 0) args.totals[token * C::kTotalStride] = total;
  }
};

}  // namespace forge::gpu
