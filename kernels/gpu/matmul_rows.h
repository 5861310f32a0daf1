#pragma once
// Matmul by rows: out[t][n] = sum over k of w[n][k] * x[t][k], for tiles of 1 to 16 tokens t. Decoding has one tile and
// runs at the rate at which weights are read; with many tokens the grid has a tile more for every 16, and blocks of the
// same weight rows are neighbours, so that the weights come from the cache.
// A team of lanes takes kRowsPerTeam rows n at a time; its lanes take the rows' units (formats.h, codes.h) in turn. Up
// to kUnitsAhead units of each row are in flight: where one has been multiplied, the next is loaded. The first ones are
// loaded before the activations are waited for.
// Experts: a tile is a slot, and kTokens is 1.
// Order of a sum: a lane's units in k order, then the butterfly of the lanes, then the waves of a row in order. It
// depends on the configuration, never on how many tokens there are.

#include "kernels/gpu/matmul_args.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// A configuration derives from this, names Weight (formats.h) and Epilogue (tile.h), and changes what it likes.
struct MatmulDefaults : MatmulCommon {
  static constexpr int kTokens = 1;           ///< a tile, 1..16
  static constexpr int kWaves = 8;            ///< a block
  static constexpr int kLanesPerRow = kWave;  ///< of one wave; fewer where rows are short
  static constexpr int kWavesPerRow = 1;      ///< more where there are few rows
  static constexpr int kRowsPerTeam = 1;      ///< rows that share a load of the activations
  static constexpr int kUnitsAhead = 2;       ///< units a lane and row in flight
};

template <class C>
struct MatmulRows {
  using W = typename C::Weight;
  using E = typename C::Epilogue;
  static_assert(C::kTokens >= 1 && C::kTokens <= kTokenTile, "1 to 16 tokens a tile");
  static_assert(is_power_of_two(C::kLanesPerRow) && C::kLanesPerRow <= kWave, "lanes a row: a power of two in a wave");
  static_assert(C::kWavesPerRow == 1 || C::kLanesPerRow == kWave, "waves share a row only as a whole");
  static_assert(C::kWaves % C::kWavesPerRow == 0, "a block has whole teams of waves");
  static_assert(C::kRowsPerTeam >= 1 && C::kUnitsAhead >= 1, "a team has a row, a lane a unit in flight");

  static constexpr bool kExperts = C::kSlots > 0;
  static constexpr int kColumns = kExperts ? C::kColumns : W::kRows, kSlotsOfToken = kExperts ? C::kSlots : 1;
  static_assert(!kExperts || (C::kTokens == 1 && W::kRows % C::kColumns == 0), "a slot a tile, whole experts");
  static constexpr int kTeamsPerWave = kWave / C::kLanesPerRow;
  static constexpr int kThreads = C::kWaves * kWave;
  static constexpr int kBlockRows = C::kWaves / C::kWavesPerRow * kTeamsPerWave * C::kRowsPerTeam;
  static constexpr int kTokenTiles = ceil_div(C::kTokensTotal, C::kTokens);
  static constexpr int kBlocks = ceil_div(kColumns, kBlockRows) * kTokenTiles;
  static constexpr int kStride = C::kLanesPerRow * C::kWavesPerRow;
  static constexpr int kBatches = ceil_div(W::kUnits, kStride* C::kUnitsAhead);
  static constexpr bool kWholeBatches = W::kUnits % (kStride * C::kUnitsAhead) == 0;
  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(C::kTokensTotal % C::kTokens == 0, "memory has whole tiles of tokens");

  using OutTile = Tile<C::kTokens, kBlockRows, C::kWavesPerRow, kThreads>;
  struct Lds {
    OutTile tile;
  };
  using Args = MatmulArgs<E, kExperts>;
  struct Batch {
    typename W::Unit units[C::kUnitsAhead][C::kRowsPerTeam];
  };

  /// `unit` of each of the team's rows, as the u-th of a batch; `last` is the last row that there is. Rows behind it
  /// repeat it (nobody takes their sums); units past the end are not loaded.
  FORGE_DEVICE static void load_units(const u8* weights, int row0, int last, int unit, int u, Batch& out) {
    FORGE_UNROLL
    for (int r = 0; r < C::kRowsPerTeam; ++r) {
      const int row = row0 + r < last ? row0 + r : last;
      if (kWholeBatches || unit < W::kUnits)
        out.units[u][r] = W::load_unit(weights, row, unit);
      else
        out.units[u][r] = typename W::Unit{};
    }
  }

  /// A batch into the sums. What follows it is loaded into its registers as they become free, unless it is the last.
  template <bool IsLast>
  FORGE_DEVICE static void multiply(const Args& args, const u8* x, int row0, int last, int unit0, Batch& batch,
                                    float (&sums)[C::kRowsPerTeam][C::kTokens]) {
    FORGE_UNROLL
    for (int u = 0; u < C::kUnitsAhead; ++u) {
      const int unit = unit0 + u * kStride;
      if (!IsLast || kWholeBatches || unit < W::kUnits) {
        FORGE_UNROLL
        for (int t = 0; t < C::kTokens; ++t) {
          const auto part = W::load_x(x + t * W::kXRowBytes, unit);
          FORGE_UNROLL
          for (int r = 0; r < C::kRowsPerTeam; ++r) sums[r][t] = W::add(sums[r][t], batch.units[u][r], part);
          if (C::kTokens > 4 && t % 4 == 3) keep_order();  // or all tokens' activations are loaded ahead, into spills
        }
      }
      if constexpr (!IsLast) load_units(args.weights, row0, last, unit + kStride * C::kUnitsAhead, u, batch);
    }
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int tile_id = block_id() % kTokenTiles, t0 = tile_id * C::kTokens,
              token0 = kExperts ? t0 / kSlotsOfToken : t0;
    if (kTokenTiles > 1 && idle_tile(args.counts, C::kCount, token0)) return;
    const int team_wave = wave_id() / C::kWavesPerRow, share = wave_id() % C::kWavesPerRow;
    const int team = team_wave * kTeamsPerWave + lane_id() / C::kLanesPerRow;
    const int first = share * C::kLanesPerRow + lane_id() % C::kLanesPerRow;
    const int row0 = block_id() / kTokenTiles * kBlockRows, team_row = team * C::kRowsPerTeam;
    const u8* x = args.x + static_cast<u64>(C::kSharedX ? token0 : t0) * W::kXRowBytes;
    float sums[C::kRowsPerTeam][C::kTokens] = {};

    int weight0 = 0;  // the first row of the tile's expert
    if constexpr (kExperts) {
      release_consumers();
      wait_for_producer();
      weight0 = load(args.experts + t0) * kColumns;
    }
    const int begin = weight0 + row0 + team_row, last = weight0 + kColumns - 1;
    Batch batch;
    FORGE_UNROLL
    for (int u = 0; u < C::kUnitsAhead; ++u) load_units(args.weights, begin, last, first + u * kStride, u, batch);
    if constexpr (!kExperts) {
      release_consumers();
      wait_for_producer();
    }
    Finish<E, OutTile, kColumns, RowsInOrder<C::kTokensTotal>> finish(args.epilogue, row0, {t0});
    finish.prepare();
    constexpr int kStep = kStride * C::kUnitsAhead;
    FORGE_LOOP
    for (int b = 0; b + 1 < kBatches; ++b) multiply<false>(args, x, begin, last, first + b * kStep, batch, sums);
    multiply<true>(args, x, begin, last, first + (kBatches - 1) * kStep, batch, sums);

    FORGE_UNROLL
    for (int r = 0; r < C::kRowsPerTeam; ++r) {
      FORGE_UNROLL
      for (int t = 0; t < C::kTokens; ++t) {
        const float sum = sum_lanes<C::kLanesPerRow>(sums[r][t]);
        if (lane_id() % C::kLanesPerRow == 0) lds.tile.set_partial(share, t, team_row + r, sum);
      }
    }
    finish.set_factors(lds.tile);
    barrier();
    finish.run(lds.tile);
  }
};

}  // namespace forge::gpu
