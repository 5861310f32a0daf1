#pragma once
// Matmul without matrix instructions (GEMV for one token): out[t][n] = sum over k of w[n][k] * x[t][k], for tiles of 1
// to 16 tokens t. Used for decode, where its speed is that of reading the weights, and for prefill on targets without
// matrix instructions. The grid is [row blocks][token tiles] with the tiles innermost: blocks with the same weights are
// neighbours and find them in the cache.
//
// Work split. A team of lanes computes kRowsPerTeam weight rows; its lanes take the units of a row (16 bytes or 32
// columns of codes: formats.h, codes.h) round-robin. A team is kLanesPerRow lanes of one wave, or kWavesPerRow whole
// waves where a weight has few rows. It has kStride lanes:
//
//   row n of the weight   | unit 0 | unit 1 | ... | unit kStride-1 | unit kStride | ...
//   lane of the team          0        1      ...     kStride-1          0          ...
//
// A lane keeps kUnitsAhead units of each row in flight (a Batch): as soon as a unit has been multiplied, the next load
// goes into its registers. The first batch is loaded before wait_for_producer(), since weights are older than the step.
//
// Mixture of experts: a tile is one slot (kTokens is 1). With kSummed it is one token, and each of a block's waves
// multiplies for one slot, by that slot's expert; the waves of the same columns add up their products as those of a row
// do.
//
// Order of a sum: the lane's units in ascending k, then the butterfly over lanes, then the waves of a row in order. It
// depends on the configuration only, never on the number of tokens in a step.

#include "kernels/gpu/matmul_args.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this, names Weight (formats.h, codes.h) and Epilogue (tile.h), and overrides
/// what it needs.
struct MatmulDefaults : MatmulCommon {
  static constexpr int kTokens = 1;           ///< tokens of a tile, 1..16
  static constexpr int kWaves = 8;            ///< waves of a block
  static constexpr int kLanesPerRow = kWave;  ///< lanes of a wave that share a row; fewer if rows are short
  static constexpr int kWavesPerRow = 1;      ///< waves that share a row; more if there are few rows
  static constexpr int kRowsPerTeam = 1;      ///< rows of a team, which share each load of the activations
  static constexpr int kUnitsAhead = 2;       ///< units in flight, per lane and row
};

template <class C>
struct MatmulRows {
  using W = typename C::Weight;
  using E = typename C::Epilogue;
  static_assert(C::kTokens >= 1 && C::kTokens <= kTokenTile, "kTokens must be 1 to 16");
  static_assert(is_power_of_two(C::kLanesPerRow) && C::kLanesPerRow <= kWave,
                "kLanesPerRow must be a power of two within a wave");
  static_assert(C::kWavesPerRow == 1 || C::kLanesPerRow == kWave, "kWavesPerRow > 1 needs kLanesPerRow == kWave");
  static_assert(C::kWaves % C::kWavesPerRow == 0, "kWaves must be a multiple of kWavesPerRow");
  static_assert(C::kRowsPerTeam >= 1 && C::kUnitsAhead >= 1, "kRowsPerTeam and kUnitsAhead must be at least 1");

  static constexpr bool kExperts = C::kSlots > 0, kSummed = C::kSummed;
  static constexpr int kColumns = kExperts ? C::kColumns : W::kRows;
  static constexpr int kSlotsOfToken = kExperts && !kSummed ? C::kSlots : 1;  ///< tiles of a token
  static constexpr int kPartials = kSummed ? C::kSlots : C::kWavesPerRow;     ///< waves with sums of the same columns
  static_assert(!kSummed || (kExperts && C::kWavesPerRow == 1 && C::kWaves % C::kSlots == 0),
                "waves that share a row multiply for one slot each");
  static_assert(!kExperts || (C::kTokens == 1 && W::kRows % C::kColumns == 0),
                "with experts, kTokens must be 1 and the weight's rows a multiple of kColumns");
  static constexpr int kTeamsPerWave = kWave / C::kLanesPerRow;
  static constexpr int kThreads = C::kWaves * kWave;
  static constexpr int kBlockRows = C::kWaves / kPartials * kTeamsPerWave * C::kRowsPerTeam;
  static constexpr int kTokenTiles = ceil_div(C::kTokensTotal, C::kTokens);
  static constexpr int kBlocks = ceil_div(kColumns, kBlockRows) * kTokenTiles;
  static constexpr int kStride = C::kLanesPerRow * C::kWavesPerRow;
  static constexpr int kBatches = ceil_div(W::kUnits, kStride* C::kUnitsAhead);
  static constexpr bool kWholeBatches = W::kUnits % (kStride * C::kUnitsAhead) == 0;
  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(C::kHeads == 1 || (C::kHeadColumns % C::kRowsPerTeam == 0 && C::kHeads * C::kHeadColumns == kColumns),
                "a team's rows must lie in one head");
  static_assert(C::kTokensTotal % C::kTokens == 0, "kTokensTotal must be a multiple of kTokens");

  using OutTile = Tile<C::kTokens, kBlockRows, kPartials, kThreads>;
  struct Lds {
    OutTile tile;
  };
  using Args = MatmulArgs<E, kExperts, kSummed>;
  struct Batch {
    typename W::Unit units[C::kUnitsAhead][C::kRowsPerTeam];
  };

  /// Loads `unit` of each of the team's rows into place u of the batch. `last` is the last row of the weight (or
  /// expert); rows after it load it again, and the epilogue ignores their sums. Units past the end of a row are not
  /// loaded.
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

  /// Multiplies a batch into the sums. Unless it is the last, the units of the next batch are loaded into the same
  /// registers as they become free.
  template <bool IsLast>
  FORGE_DEVICE static void multiply(const Args& args, const u8* x, int row0, int last, int unit0, Batch& batch,
                                    float (&sums)[C::kRowsPerTeam][C::kTokens]) {
    FORGE_UNROLL
    for (int u = 0; u < C::kUnitsAhead; ++u) {
      const int unit = unit0 + u * kStride;
      if (!IsLast || kWholeBatches || unit < W::kUnits) {
        FORGE_UNROLL
        for (int t = 0; t < C::kTokens; ++t) {
          FORGE_UNROLL
          for (int term = 0; term < C::kXTerms; ++term) {
            const auto part = W::load_x(x + t * x_row_bytes<C>() + term * W::kXRowBytes, unit);
            FORGE_UNROLL
            for (int r = 0; r < C::kRowsPerTeam; ++r) sums[r][t] = W::add(sums[r][t], batch.units[u][r], part);
          }
          // Otherwise the compiler moves the products behind the loads of all tokens, to where the sums are used.
          if constexpr (C::kTokens > 4 && C::kXTerms > 1) {
            FORGE_UNROLL
            for (int r = 0; r < C::kRowsPerTeam; ++r)
              sums[r][t] = __builtin_bit_cast(float, opaque(__builtin_bit_cast(int, sums[r][t])));
          }
          // And otherwise it hoists these loads, and spills.
          if (C::kTokens > 4 && t % 4 == 3) keep_order();
        }
      }
      if constexpr (!IsLast) load_units(args.weights, row0, last, unit + kStride * C::kUnitsAhead, u, batch);
    }
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int tile_id = block_of<C>() % kTokenTiles, t0 = tile_id * C::kTokens,
              token0 = kExperts ? t0 / kSlotsOfToken : t0;
    if (kTokenTiles > 1 && idle_tile(args.counts, C::kCount, token0)) return;
    const int team_wave = wave_id() / kPartials, part = wave_id() % kPartials, slot = kSummed ? part : 0;
    const int team = team_wave * kTeamsPerWave + lane_id() / C::kLanesPerRow;
    const int first = (kSummed ? 0 : part * C::kLanesPerRow) + lane_id() % C::kLanesPerRow;
    const int row0 = block_of<C>() / kTokenTiles * kBlockRows, team_row = team * C::kRowsPerTeam;
    const int slot0 = kSummed ? t0 * C::kSlots + slot : t0;
    const u8* x = args.x + static_cast<u64>(C::kSharedX ? token0 : slot0) * x_row_bytes<C>();
    if constexpr (C::kHeads > 1) x += x_head_bytes<C>(row0 + team_row < kColumns ? row0 + team_row : kColumns - 1);
    float sums[C::kRowsPerTeam][C::kTokens] = {};

    // With experts, the rows to load are only known once the router has run, so the wait comes before the weights.
    int weight0 = 0;  // first weight row of the tile's, or the wave's, expert
    float factor = 1.0f;
    if constexpr (kExperts) {
      release_consumers();
      wait_for_producer();
      weight0 = load(args.experts + slot0) * kColumns;
      if constexpr (kSummed) factor = load(args.shares + static_cast<u64>(t0) * C::kShareFloats + slot);
    }
    const int begin = weight0 + row0 + team_row, last = weight0 + kColumns - 1;
    Batch batch;
    FORGE_UNROLL
    for (int u = 0; u < C::kUnitsAhead; ++u) load_units(args.weights, begin, last, first + u * kStride, u, batch);
    Finish<E, OutTile, kColumns, RowsInOrder<C::kTokensTotal>> finish(args.epilogue, row0, {t0});
    if constexpr (!kExperts) release_consumers();
    finish.prepare_older();
    if constexpr (!kExperts) wait_for_producer();
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
        if (lane_id() % C::kLanesPerRow == 0) lds.tile.set_partial(part, t, team_row + r, kSummed ? sum * factor : sum);
      }
    }
    finish.set_factors(lds.tile);
    barrier();
    finish.run(lds.tile);
  }
};

}  // namespace forge::gpu
