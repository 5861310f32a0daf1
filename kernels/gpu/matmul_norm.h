#pragma once
// A matmul for few tokens (matmul_rows.h) and what needs whole rows of it, in one launch: a block cannot normalise its
// columns before all blocks have theirs, nor sum the rows of a token's experts, nor choose experts by their logits. So
// the matmul's epilogue stores its results in scratch, and the last block of a tile of tokens (last_arrival) continues:
// MatmulNorm with a row epilogue (rows.h: the sum over experts, RMSNorms, residual, the next norm's weight and squares,
// quantisation), MatmulRoute with the router. That block alone reads whole rows, which is why steps of many tokens have
// two launches instead.
//
// The result does not depend on which block is last: it reads the same sums in the same order.

#include "kernels/gpu/experts.h"
#include "kernels/gpu/matmul_rows.h"
#include "kernels/gpu/rows.h"

namespace forge::gpu {

/// C is a configuration of MatmulRows (MatmulDefaults). Then: Args, Lds and run(args, t, lds), which a whole block
/// calls for each token. A tile of experts is a token's slots.
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
  /// of tokens, zero before the first use and afterwards.
  struct Args {
    typename Matmul::Args matmul;
    typename Then::Args then;
    u32* counters;
  };

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    constexpr int kTokens = C::kTokensTotal / Matmul::kSlotsOfToken;
    constexpr int kTiles = Matmul::kTokenTiles / Matmul::kSlotsOfToken, kTileTokens = kTokens / kTiles;
    const int tile = block_id() % Matmul::kTokenTiles / Matmul::kSlotsOfToken, t0 = tile * kTileTokens;
    Matmul::run(args.matmul, lds.matmul);
    if (kTiles > 1 && idle_tile(args.matmul.counts, C::kCount, t0)) return;
    if (!last_arrival(args.counters + tile, static_cast<u32>(kBlocks / kTiles), lds.flag)) return;
    FORGE_LOOP
    for (int t = t0; t < t0 + kTileTokens; ++t) Then::run(args.then, t, lds.then);
  }
};

/// Rows of all columns. C names Tail, their epilogue, and TailSource, where they come from: FreshRows, or FreshSlots
/// with experts.
template <class C>
struct RowsThen {
  using Matmul = MatmulRows<C>;
  struct Config {
    using Source = typename C::TailSource;
    using Epilogue = typename C::Tail;
    static constexpr int kColumns = Matmul::kColumns, kWaves = C::kWaves, kNorm = own_norm_of<Epilogue>();
    static constexpr int kBlockRows = kNorm > 0 ? kNorm : kWaves* kWave;
    static constexpr int kTokensTotal = C::kTokensTotal / Matmul::kSlotsOfToken, kCount = C::kCount;
  };
  using Rows = FillRows<Config>;
  using Args = typename Rows::Args;
  using Lds = typename Rows::Lds;

  FORGE_DEVICE static void run(const Args& args, int t, Lds& lds) {
    FORGE_LOOP
    for (int row0 = 0; row0 < Config::kColumns; row0 += Config::kBlockRows) {
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
  using Router = Route<typename C::Router, true>;
  using Args = typename Router::Args;
  using Lds = typename Router::Lds;
  static_assert(C::Router::kGroups == 1, "group-limited routing needs a block of one wave");

  FORGE_DEVICE static void run(const Args& args, int t, Lds& lds) {
    if (wave_id() == 0) Router::route(args, t, lds);
  }
};
template <class C>
struct MatmulRoute : MatmulThen<C, RouteThen<C>> {};

}  // namespace forge::gpu
