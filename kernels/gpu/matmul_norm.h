#pragma once
// A matmul for few tokens (matmul_rows.h) and what needs more of its results than a block has, in one launch: a block
// cannot normalise its columns before all blocks have theirs, nor sum the rows of a token's experts, nor choose experts
// by their logits. So the matmul's epilogue stores its results in scratch, and the last block (last_arrival) continues:
// MatmulNorm with a row epilogue (rows.h: the sum over experts, RMSNorms, residual, the next norm's weight and squares,
// quantisation), MatmulRoute with the router. A norm and a router need the whole rows of a tile of tokens, which one
// block reads alone; that is why steps of many tokens have two launches instead. The sum over experts without a norm
// needs the same columns of all slots only: each group of columns has a last block of its own.
//
// The result does not depend on which block is last: it reads the same sums in the same order.

#include "kernels/gpu/experts.h"
#include "kernels/gpu/matmul_rows.h"
#include "kernels/gpu/rows.h"

namespace forge::gpu {

/// C is a configuration of MatmulRows (MatmulDefaults). Then: kGroupBlocks (the neighbouring row blocks whose columns
/// continue together; all for whole rows), Args, Lds and run(args, t, group, lds), which a whole block calls for each
/// token. A tile of experts is a token's slots.
template <class C, class Then>
struct MatmulThen {
  using Matmul = MatmulRows<C>;
  static constexpr int kThreads = Matmul::kThreads, kBlocks = Matmul::kBlocks;
  struct Lds {
    union {
      typename Matmul::Lds matmul;
      typename Then::Lds then;
    };
    Shared<u32, 1> flag;
  };
  /// `then` reads the scratch [kTokensTotal][kColumns] that the matmul's epilogue writes. counters: one for each tile
  /// of tokens and group of columns, zero before the first use and afterwards.
  struct Args {
    typename Matmul::Args matmul;
    typename Then::Args then;
    u32* counters;
  };

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    constexpr int kTokens = C::kTokensTotal / Matmul::kSlotsOfToken;
    constexpr int kTiles = Matmul::kTokenTiles / Matmul::kSlotsOfToken, kTileTokens = kTokens / kTiles;
    constexpr int kRowBlocks = kBlocks / Matmul::kTokenTiles, kGroups = ceil_div(kRowBlocks, Then::kGroupBlocks);
    constexpr int kLastBlocks = kRowBlocks - (kGroups - 1) * Then::kGroupBlocks;  // of the last group
    const int tile = block_of<C>() % Matmul::kTokenTiles / Matmul::kSlotsOfToken, t0 = tile * kTileTokens;
    const int group = block_of<C>() / Matmul::kTokenTiles / Then::kGroupBlocks;
    const int blocks = group + 1 < kGroups ? Then::kGroupBlocks : kLastBlocks;
    Matmul::run(args.matmul, lds.matmul);
    if (kTiles > 1 && idle_tile(args.matmul.counts, C::kCount, t0)) return;
    const auto arrivals = static_cast<u32>(blocks * Matmul::kSlotsOfToken);
    if (!last_arrival(args.counters + tile * kGroups + group, arrivals, lds.flag)) return;
    FORGE_LOOP
    for (int t = t0; t < t0 + kTileTokens; ++t) Then::run(args.then, t, group, lds.then);
  }
};

/// The fewest blocks of `rows` columns that have a multiple of `unit` columns, or `most` if those are fewer.
FORGE_DEVICE constexpr int group_blocks(int rows, int unit, int most) {
  int blocks = 1;
  while (blocks < most && blocks * rows % unit != 0) ++blocks;
  return blocks;
}

/// Rows of all columns, or without a norm of them a group of columns. C names Tail, the epilogue, and TailSource, where
/// the rows come from: FreshRows, or FreshSlots with experts. kTailUnit: the epilogue needs a multiple of so many
/// columns.
template <class C>
struct RowsThen {
  using Matmul = MatmulRows<C>;
  static constexpr int kNorm = own_norm_of<typename C::Tail>();
  static constexpr int kGroupBlocks = group_blocks(Matmul::kBlockRows, kNorm > 0 ? kNorm : C::kTailUnit,
                                                   ceil_div(Matmul::kColumns, Matmul::kBlockRows));
  static constexpr int kGroupColumns = kGroupBlocks * Matmul::kBlockRows;
  struct Config {
    using Source = typename C::TailSource;
    using Epilogue = typename C::Tail;
    static constexpr int kColumns = Matmul::kColumns, kWaves = C::kWaves;
    static constexpr int kBlockRows = kNorm > 0 ? kNorm : ceil_div(kGroupColumns, C::kTailUnit) * C::kTailUnit;
    static constexpr int kTokensTotal = C::kTokensTotal / Matmul::kSlotsOfToken, kCount = C::kCount;
  };
  using Rows = FillRows<Config>;
  using Args = typename Rows::Args;
  using Lds = typename Rows::Lds;

  FORGE_DEVICE static void run(const Args& args, int t, int group, Lds& lds) {
    FORGE_LOOP
    for (int at = 0; at < kGroupColumns; at += Config::kBlockRows) {
      const int row0 = group * kGroupColumns + at;
      if (row0 >= Config::kColumns) return;
      Rows::finish_row(args, t, t, row0, lds);
      barrier();
    }
  }
};
template <class C>
struct MatmulNorm : MatmulThen<C, RowsThen<C>> {};

/// The router: C names Router, a configuration of Route.
template <class C>
struct RouteThen {
  using Router = Route<typename C::Router, true, C::kWaves>;
  using Args = typename Router::Args;
  using Lds = typename Router::Lds;
  static constexpr int kGroupBlocks = ceil_div(MatmulRows<C>::kColumns, MatmulRows<C>::kBlockRows);

  FORGE_DEVICE static void run(const Args& args, int t, int, Lds& lds) {
    Router::route(args, t, lds);
    barrier();
  }
};
template <class C>
struct MatmulRoute : MatmulThen<C, RouteThen<C>> {};

}  // namespace forge::gpu
