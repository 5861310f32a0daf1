#pragma once
// Matmul of prompts by matrix instructions: out[t][n] = sum over k of w[n][k] * x[t][k], for weights in the layout
// planes and rows of x, quantised or not. A block makes kRows columns n for kTokens tokens t. It goes along k by 32:
// the columns' weights and the tokens' activations become BF16 (F16, where weights are) in shared memory, [row][32] of
// two buffers in turn, and each wave multiplies its share of them tile by tile (matrix_tile.h), with sums in f32. What
// the next 32 columns, or the 32 behind them, are made of is on its way to registers meanwhile, so a turn has one
// barrier.
// Experts: a block's rows of out are slots that share an expert (slot_tiles.h).
// Order of a sum: k by 32 and within it as the target's instruction adds. It depends on the configuration, never on how
// many tokens there are.

#include "kernels/gpu/matmul_args.h"
#include "kernels/gpu/matrix_tile.h"
#include "kernels/gpu/slot_tiles.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// A configuration derives from this, names Weight (formats.h, codes.h) and Epilogue (tile.h), and changes what it
/// likes.
struct TilesDefaults : MatmulCommon {
  using Tile = NativeBf16Tile;
  static constexpr int kWavesDown = 2, kWavesAcross = 2;  ///< of a block: along columns n, along tokens
  static constexpr int kTilesDown = 1, kTilesAcross = 1;  ///< of a wave
  static constexpr int kStepsAhead = 1;                   ///< that loads are issued before their step; 1 or 2
};

template <class C>
struct MatmulTiles {
  using W = typename C::Weight;
  using E = typename C::Epilogue;
  using T = typename C::Tile;
  static_assert(T::kLanes == kWave, "the tile is of another wave");
  static constexpr int kRows = C::kWavesDown * C::kTilesDown * T::kM;
  static constexpr int kWaveTokens = C::kTilesAcross * T::kN, kTokens = C::kWavesAcross * kWaveTokens;
  static constexpr int kThreads = C::kWavesDown * C::kWavesAcross * kWave;
  static constexpr bool kExperts = C::kSlots > 0;
  static constexpr int kColumns = kExperts ? C::kColumns : W::kRows, kSlots = kExperts ? C::kSlots : 1;
  static_assert(W::kRows % kColumns == 0, "whole experts");
  using Slots = SlotTiles<W::kRows / kColumns, kExperts ? kTokens : 1, kThreads>;
  static constexpr int kTokenTiles = kExperts ? Slots::most(C::kTokensTotal) : ceil_div(C::kTokensTotal, kTokens);
  static constexpr int kBlocks = ceil_div(kColumns, kRows) * kTokenTiles;
  static constexpr int kStep = 32, kSteps = W::kK / kStep;
  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(W::kK % kStep == 0 && T::kK * kHalves == kStep, "k goes by 32, in two instructions");
  static_assert(kTokens % kTokenTile == 0 && kWaveTokens % kTokenTile == 0, "a wave has whole tiles of 16 tokens");
  static_assert(C::kTokensTotal % kTokenTile == 0, "memory has whole tiles of 16 tokens");
  static_assert(kStep % W::kUnitColumns == 0 && W::kUnitColumns % 8 == 0, "32 columns are whole units");

  static constexpr int kUnits = kStep / W::kUnitColumns;  ///< of a weight's row in a step
  static constexpr int kTakes = ceil_div(kRows * kUnits, kThreads);
  /// Tokens go to the threads that have no weights, where those are enough.
  static constexpr bool kApart = kRows * kUnits <= kThreads / 2 && kTokens * 2 <= kThreads / 2;
  static constexpr int kXFirst = kApart ? kThreads / 2 : 0, kXThreads = kThreads - kXFirst;
  static constexpr int kXTakes = ceil_div(kTokens * 2, kXThreads);
  FORGE_DEVICE static int x_take(int i) {
    return thread_id() < kXFirst ? kTokens * 2 : i * kXThreads + thread_id() - kXFirst;
  }

  using OutTile = Tile<kTokenTile, kRows, 1, kThreads>;
  struct Lds {
    Shared<U32x4, 2 * (kRows + kTokens) * kUnitsOfRow> units;
    OutTile tile;
    Shared<float, E::kParts == 0 ? 1 : kTokens> factors;
    typename Slots::Lds slots;
  };
  using Args = MatmulArgs<E, kExperts>;
  /// What a thread brings of the 32 columns that come next.
  struct Next {
    typename W::Unit units[kTakes];
    typename W::XHalf halves[kXTakes];
  };
  /// What a block makes: columns row0 and on (of the weight from weight0 on), rows t0 and on of x and out, or the slots
  /// that are listed.
  struct Job {
    int row0, weight0, t0, tokens;
    int rows_of_x[kXTakes];  ///< of what the thread brings; -1: none
  };
  using Sums = float[C::kTilesDown][C::kTilesAcross][T::Fragments::kC];

  /// Where the units of a row lie: rows of weights first, then tokens.
  FORGE_DEVICE static constexpr int place(int buffer, int row) {
    return (buffer * (kRows + kTokens) + row) * kUnitsOfRow;
  }

  /// Columns behind the last repeat it; nobody takes their sums.
  FORGE_DEVICE static void load_units(const Args& args, const Job& job, int step, Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kTakes; ++i) {
      const int take = i * kThreads + thread_id(), row = job.row0 + take / kUnits;
      if (kRows * kUnits % kThreads == 0 || take < kRows * kUnits)
        next.units[i] = W::load_unit(args.weights, job.weight0 + (row < kColumns ? row : kColumns - 1),
                                     step * kUnits + take % kUnits);
    }
  }
  /// Rows that are not there are zeros.
  FORGE_DEVICE static void load_halves(const Args& args, const Job& job, int step, Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kXTakes; ++i) {
      const int row = job.rows_of_x[i], half = step * 2 + thread_id() % 2;  // kXFirst is even
      next.halves[i] = typename W::XHalf{};
      if (row >= 0)
        next.halves[i] = W::XHalf::template load<W::kK>(args.x + static_cast<u64>(row) * W::kXRowBytes, half);
    }
  }

  template <int Columns>
  FORGE_DEVICE static void store_pairs(Lds& lds, int buffer, int row, int column, const u32 (&pairs)[Columns / 2]) {
    FORGE_UNROLL
    for (int u = 0; u < Columns / 8; ++u)
      lds.units.set(place(buffer, 0) + unit_place(row, column / 8 + u),
                    U32x4{{pairs[4 * u], pairs[4 * u + 1], pairs[4 * u + 2], pairs[4 * u + 3]}});
  }
  template <int Buffer>
  FORGE_DEVICE static void store(Lds& lds, const Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kTakes; ++i) {
      const int take = i * kThreads + thread_id();
      if (kRows * kUnits % kThreads != 0 && take >= kRows * kUnits) continue;
      u32 pairs[W::kUnitColumns / 2];
      W::expand(next.units[i], pairs);
      store_pairs<W::kUnitColumns>(lds, Buffer, take / kUnits, take % kUnits * W::kUnitColumns, pairs);
    }
    FORGE_UNROLL
    for (int i = 0; i < kXTakes; ++i) {
      const int take = x_take(i);
      if ((kXFirst > 0 || kTokens * 2 % kThreads != 0) && take >= kTokens * 2) continue;
      u32 pairs[8];
      next.halves[i].expand(pairs);
      store_pairs<16>(lds, Buffer, kRows + take / 2, take % 2 * 16, pairs);
    }
  }

  template <int Buffer>
  FORGE_DEVICE static void multiply(const Lds& lds, int down, int across, Sums& sums) {
    const int down0 = place(Buffer, down * C::kTilesDown * T::kM),
              across0 = place(Buffer, kRows + across * kWaveTokens);
    // All of one side stay in registers, those of the other come one by one: the fewer, the better.
    if constexpr (C::kTilesAcross * T::kBUnits + T::kAUnits < C::kTilesDown * T::kAUnits + T::kBUnits) {
      U32x4 b[C::kTilesAcross][T::kBUnits];
      FORGE_UNROLL
      for (int n = 0; n < C::kTilesAcross; ++n) fetch_b<T>(lds.units, across0 + n * T::kN * kUnitsOfRow, b[n]);
      FORGE_UNROLL
      for (int m = 0; m < C::kTilesDown; ++m) {
        U32x4 a[T::kAUnits];
        fetch_a<T>(lds.units, down0 + m * T::kM * kUnitsOfRow, a);
        FORGE_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          FORGE_UNROLL
          for (int n = 0; n < C::kTilesAcross; ++n) multiply_half<T>(half, a, b[n], sums[m][n]);
        }
      }
    } else {
      U32x4 a[C::kTilesDown][T::kAUnits];
      FORGE_UNROLL
      for (int m = 0; m < C::kTilesDown; ++m) fetch_a<T>(lds.units, down0 + m * T::kM * kUnitsOfRow, a[m]);
      FORGE_UNROLL
      for (int n = 0; n < C::kTilesAcross; ++n) {
        U32x4 b[T::kBUnits];
        fetch_b<T>(lds.units, across0 + n * T::kN * kUnitsOfRow, b);
        FORGE_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          FORGE_UNROLL
          for (int m = 0; m < C::kTilesDown; ++m) multiply_half<T>(half, a[m], b, sums[m][n]);
        }
      }
    }
  }

  static constexpr int kAhead = C::kStepsAhead;
  static_assert(kAhead == 1 || kAhead == 2, "buffers and what is on its way change places every two steps");
  FORGE_DEVICE static void load_step(const Args& args, const Job& job, int step, Next& next) {
    load_units(args, job, step, next);
    load_halves(args, job, step, next);
  }

  /// Multiplies what lies in a buffer, brings the step behind it into the other one where there is more, and sends for
  /// the one that comes kAhead steps later.
  template <int Buffer, bool More>
  FORGE_DEVICE static void turn(const Args& args, Lds& lds, const Job& job, int step, int down, int across,
                                Next (&next)[kAhead], Sums& sums) {
    barrier();
    if constexpr (More) {
      load_step(args, job, kAhead == 1 || step + kAhead < kSteps ? step + kAhead : kSteps - 1, next[Buffer % kAhead]);
      keep_schedule();  // or AMD's compiler makes numbers of them before there is anything to wait behind
    }
    multiply<Buffer>(lds, down, across, sums);
    if constexpr (More) {
      keep_schedule();
      store<1 - Buffer>(lds, next[(1 - Buffer) % kAhead]);
    }
  }

  /// The sums of the block's tokens 16 * slice and on, where this wave has them.
  template <int Slice>
  FORGE_DEVICE static void hand_over(Lds& lds, int thread, const Sums& sums) {
    const int wave = uniform(thread / kWave), down = wave % C::kWavesDown;
    if (wave / C::kWavesDown != Slice * kTokenTile / kWaveTokens) return;
    constexpr int kTiles = kTokenTile / T::kN, kFirst = Slice * kTokenTile % kWaveTokens / T::kN;
    const int lane = thread % kWave, row0 = down * C::kTilesDown * T::kM;
    FORGE_UNROLL
    for (int m = 0; m < C::kTilesDown; ++m) {
      FORGE_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        FORGE_UNROLL
        for (int i = 0; i < T::Fragments::kC; ++i)
          lds.tile.set(n * T::kN + T::c_column(lane, i), row0 + m * T::kM + T::c_row(lane, i), sums[m][kFirst + n][i]);
      }
    }
  }
  FORGE_DEVICE static auto rows_of(const Lds& lds, const Job& job, int first) {
    if constexpr (kExperts)
      return RowsListed<kTokens>{lds.slots.slots, first, job.tokens};
    else
      return RowsInOrder<C::kTokensTotal>{job.t0 + first};
  }
  template <int Slice>
  FORGE_DEVICE static void finish_slices(const Args& args, Lds& lds, const Job& job, int thread, const Sums& sums) {
    if constexpr (Slice * kTokenTile < kTokens) {
      if (Slice * kTokenTile >= job.tokens) return;  // the same in all lanes
      const auto rows = rows_of(lds, job, Slice * kTokenTile);
      Finish<E, OutTile, kColumns, decltype(rows)> finish(args.epilogue, job.row0, rows, thread);
      finish.prepare();
      hand_over<Slice>(lds, thread, sums);
      if constexpr (E::kParts > 0)
        if (thread < kTokenTile) lds.tile.factors.set(thread, lds.factors.get(Slice * kTokenTile + thread));
      barrier();
      finish.run(lds.tile);
      barrier();
      finish_slices<Slice + 1>(args, lds, job, thread, sums);
    }
  }

  /// The block's job; false where it has none.
  FORGE_DEVICE static bool find_job(const Args& args, Lds& lds, int tile, int real, Job& job) {
    const int most = C::kTokensTotal / kSlots, whole = ceil_div(real, kTokenTile) * kTokenTile;
    const int tokens = whole < most ? whole : most;
    if constexpr (kExperts) {
      const auto found = Slots::find(args.experts, tokens * kSlots, tile, lds.slots);
      job.weight0 = found.expert * kColumns;
      job.tokens = found.count;
    } else {
      job.t0 = tile * kTokens;
      job.tokens = tokens - job.t0 < kTokens ? tokens - job.t0 : kTokens;
    }
    if (job.tokens <= 0) return false;
    FORGE_UNROLL
    for (int i = 0; i < kXTakes; ++i) {
      const int t = x_take(i) / 2;
      job.rows_of_x[i] = -1;
      if (t >= job.tokens) continue;
      if constexpr (kExperts)
        job.rows_of_x[i] = lds.slots.slots.get(t) / (C::kSharedX ? kSlots : 1);
      else
        job.rows_of_x[i] = job.t0 + t;
    }
    return true;
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int tile = block_id() % kTokenTiles, real = uniform(load(args.counts + C::kCount));
    if (!kExperts && tile * kTokens >= real) return;
    const int down = wave_id() % C::kWavesDown, across = wave_id() / C::kWavesDown;
    Job job{};
    job.row0 = block_id() / kTokenTiles * kRows;
    Next next[kAhead];
    if constexpr (kExperts) {
      release_consumers();
      wait_for_producer();
      if (!find_job(args, lds, tile, real, job)) return;
      load_units(args, job, 0, next[0]);
    } else {
      find_job(args, lds, tile, real, job);
      load_units(args, job, 0, next[0]);
      release_consumers();
      wait_for_producer();
    }
    load_halves(args, job, 0, next[0]);
    if constexpr (kAhead == 2) load_step(args, job, kSteps > 1 ? 1 : 0, next[1]);
    if constexpr (E::kParts > 0) {
      const auto rows = rows_of(lds, job, 0);
      Finish<E, OutTile, kColumns, decltype(rows)>(args.epilogue, job.row0, rows)
          .template each_factor<kTokens>([&](int t, float factor) { lds.factors.set(t, factor); });
    }
    store<0>(lds, next[0]);
    Sums sums = {};
    FORGE_LOOP
    for (int step = 0; step + 1 < kSteps; step += 2) {
      turn<0, true>(args, lds, job, step, down, across, next, sums);
      if (step + 2 < kSteps)
        turn<1, true>(args, lds, job, step + 1, down, across, next, sums);
      else
        turn<1, false>(args, lds, job, step + 1, down, across, next, sums);
    }
    if constexpr (kSteps % 2 != 0) turn<0, false>(args, lds, job, kSteps - 1, down, across, next, sums);
    finish_slices<0>(args, lds, job, anew(thread_id()), sums);
  }
};

}  // namespace forge::gpu
