#pragma once
// A matmul for few tokens (matmul_rows.h) whose rows are then normalised as a whole, in the same launch: a block cannot
// normalise its columns before all blocks have theirs. So the matmul's epilogue stores its results in scratch, and the
// last block of a tile of tokens (last_arrival) runs the row epilogue `Tail` on them: RMSNorm, residual, the next
// norm's weight and squares, quantisation (rows.h: FillRows with kOwnNorm). That block alone reads whole rows, which is
// why steps of many tokens have two launches instead.
//
// The result does not depend on which block is last: it reads the same sums in the same order.

#include "kernels/gpu/matmul_rows.h"
#include "kernels/gpu/rows.h"

namespace forge::gpu {

/// C is a configuration of MatmulRows (MatmulDefaults) that also names Tail, an epilogue of rows of all columns.
template <class C>
struct MatmulNorm {
  using Matmul = MatmulRows<C>;
  static constexpr int kThreads = Matmul::kThreads, kBlocks = Matmul::kBlocks;
  struct RowsConfig {
    using Source = FreshRows<Matmul::kColumns>;
    using Epilogue = typename C::Tail;
    static constexpr int kColumns = Matmul::kColumns, kBlockRows = Matmul::kColumns, kWaves = C::kWaves;
    static constexpr int kTokensTotal = C::kTokensTotal, kCount = C::kCount;
  };
  using Rows = FillRows<RowsConfig>;
  static_assert(!Matmul::kExperts, "the rows of a token's experts are not normalised");

  struct Lds {
    union {
      typename Matmul::Lds matmul;
      typename Rows::Lds rows;
    };
    Shared<u32, 1> flag;
  };
  /// rows.source.x: the scratch [kTokensTotal][kColumns] that the matmul's epilogue writes. counters: one for each tile
  /// of tokens, zero before the first use and afterwards.
  struct Args {
    typename Matmul::Args matmul;
    typename Rows::Args rows;
    u32* counters;
  };

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    constexpr int kTiles = Matmul::kTokenTiles;
    const int tile = block_id() % kTiles, t0 = tile * C::kTokens;
    Matmul::run(args.matmul, lds.matmul);
    if (kTiles > 1 && idle_tile(args.matmul.counts, C::kCount, t0)) return;
    if (!last_arrival(args.counters + tile, static_cast<u32>(kBlocks / kTiles), lds.flag)) return;
    FORGE_LOOP
    for (int t = t0; t < t0 + C::kTokens; ++t) {
      Rows::finish_row(args.rows, t, t, 0, lds.rows);
      barrier();
    }
  }
};

}  // namespace forge::gpu
