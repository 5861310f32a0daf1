#pragma once
// Matmul by matrix instructions (GEMM, for prefill): out[t][n] = sum over k of w[n][k] * x[t][k]. Weights are in the
// layout `planes`; rows of x are quantised or f32, as the weight's format wants them. A block computes kRows columns n
// for kTokens tokens t; a wave computes kTilesDown x kTilesAcross tiles of it, with f32 sums in registers:
//
//                      tokens ->   wave across 0   wave across 1            kWavesDown = 2, kWavesAcross = 2
//   columns n    wave down 0       wave 0          wave 2
//       |        wave down 1       wave 1          wave 3
//
// k is processed in steps of 32 columns. In each step weights and activations are dequantised to BF16 (F16 for F16
// weights, and where activations have 16 bits) into shared memory, laid out as [row][32] (matrix_tile.h: units), kRows
// weight rows first and kTokens activation rows after them. Two buffers alternate, and loads from global memory are
// issued one or two steps ahead (kStepsAhead), so that a step needs one barrier:
//
//   turn s:   barrier | issue loads of step s + kStepsAhead | multiply buffer s % 2 | store step s + 1, other buffer
//
// The barrier makes buffer s % 2 complete, and it is also what allows the other buffer to be overwritten: all waves
// have multiplied it in turn s - 1.
//
// Mixture of experts: the tokens of a block are slots that share an expert (slot_tiles.h).
//
// Order of a sum: steps of 32 columns in ascending k, within a step as the target's instruction adds. It depends on the
// configuration only, never on the number of tokens in a step.

#include "kernels/gpu/matmul_args.h"
#include "kernels/gpu/matrix_tile.h"
#include "kernels/gpu/slot_tiles.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this, names Weight (formats.h, codes.h) and Epilogue (tile.h), and overrides
/// what it needs.
struct TilesDefaults : MatmulCommon {
  using Tile = NativeBf16Tile;
  static constexpr int kWavesDown = 2, kWavesAcross = 2;  ///< waves of a block: along columns n, along tokens
  static constexpr int kTilesDown = 1, kTilesAcross = 1;  ///< tiles of a wave: along columns n, along tokens
  static constexpr int kStepsAhead = 1;                   ///< steps between issuing loads and their use; 1 or 2
};

/// 16 columns of a token whose row has this many terms, and the numbers that tiles hold.
template <class Weight, int Terms>
struct HalfOf {
  using Half = typename Weight::XHalf;
  using Numbers = TileBf16;
};
template <class Weight>
struct HalfOf<Weight, 2> {
  using Half = WideHalf;
  using Numbers = ScaledF16;
};

template <class C>
struct MatmulTiles {
  using W = typename C::Weight;
  using E = typename C::Epilogue;
  using T = typename C::Tile;
  using X = typename HalfOf<W, C::kXTerms>::Half;
  using Numbers = typename HalfOf<W, C::kXTerms>::Numbers;
  static_assert(T::kLanes == kWave, "the tile is for another wave size");
  static_assert(C::kXTerms == 1 || T::kF16, "activations of two terms are multiplied in F16");
  static constexpr int kRows = C::kWavesDown * C::kTilesDown * T::kM;
  static constexpr int kWaveTokens = C::kTilesAcross * T::kN, kTokens = C::kWavesAcross * kWaveTokens;
  static constexpr int kThreads = C::kWavesDown * C::kWavesAcross * kWave;
  static constexpr bool kExperts = C::kSlots > 0;
  static constexpr int kColumns = kExperts ? C::kColumns : W::kRows, kSlots = kExperts ? C::kSlots : 1;
  static_assert(W::kRows % kColumns == 0, "the weight's rows must be a multiple of kColumns");
  using Slots = SlotTiles<W::kRows / kColumns, kExperts ? kTokens : 1, kThreads>;
  static constexpr int kTokenTiles = kExperts ? Slots::most(C::kTokensTotal) : ceil_div(C::kTokensTotal, kTokens);
  static constexpr int kBlocks = ceil_div(kColumns, kRows) * kTokenTiles;
  static constexpr int kStep = 32, kSteps = W::kK / kStep;
  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(C::kHeads == 1 || (C::kHeadColumns % kRows == 0 && C::kHeads * C::kHeadColumns == kColumns),
                "a block's columns must lie in one head");
  static_assert(W::kK % kStep == 0 && T::kK * kHalves == kStep,
                "k must be a multiple of 32, which two instructions cover");
  static_assert(kTokens % kTokenTile == 0 && kWaveTokens % kTokenTile == 0,
                "the tokens of a wave must be a multiple of 16");
  static_assert(C::kTokensTotal % kTokenTile == 0, "kTokensTotal must be a multiple of 16");
  static_assert(kStep % W::kUnitColumns == 0 && W::kUnitColumns % 8 == 0,
                "32 columns must be whole units of the weight");

  // Loads of a step: kRows * kUnits units of weights, and kTokens * 2 halves (16 columns) of activations, distributed
  // over the threads.
  static constexpr int kUnits = kStep / W::kUnitColumns;             ///< units of a weight row in a step
  static constexpr int kTakes = ceil_div(kRows * kUnits, kThreads);  ///< units that a thread loads
  /// If both fit into half of the threads, the lower half loads weights and the upper half loads activations.
  static constexpr bool kApart = kRows * kUnits <= kThreads / 2 && kTokens * 2 <= kThreads / 2;
  static constexpr int kXFirst = kApart ? kThreads / 2 : 0, kXThreads = kThreads - kXFirst;
  static constexpr int kXTakes = ceil_div(kTokens * 2, kXThreads);
  /// The thread's i-th half of the activations: 2 * token + half; kTokens * 2 or more for none.
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
  /// A thread's share of the weights and activations of a later step, on its way from global memory to registers.
  struct Next {
    typename W::Unit units[kTakes];
    X halves[kXTakes];
  };
  /// The block's part of the output: columns row0 .. of the weight that starts at row weight0 (the expert's first), and
  /// `tokens` rows of x and out from t0 on, or, with experts, the listed slots.
  struct Job {
    int row0, weight0, t0, tokens;
    int rows_of_x[kXTakes];  ///< rows of x that this thread loads; -1: none
  };
  using Sums = float[C::kTilesDown][C::kTilesAcross][T::Fragments::kC];

  /// Index of the first unit of a row in shared memory. Rows 0 .. kRows-1 are weights, then come the tokens.
  FORGE_DEVICE static constexpr int place(int buffer, int row) {
    return (buffer * (kRows + kTokens) + row) * kUnitsOfRow;
  }

  /// Loads the thread's units of weights for a step. Columns after the last one load it again; their sums are ignored.
  FORGE_DEVICE static void load_units(const Args& args, const Job& job, int step, Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kTakes; ++i) {
      const int take = i * kThreads + thread_id(), row = job.row0 + take / kUnits;
      if (kRows * kUnits % kThreads == 0 || take < kRows * kUnits)
        next.units[i] = W::load_unit(args.weights, job.weight0 + (row < kColumns ? row : kColumns - 1),
                                     step * kUnits + take % kUnits);
    }
  }
  /// Loads the thread's activations for a step; zeros for rows that do not exist.
  FORGE_DEVICE static void load_halves(const Args& args, const Job& job, int step, Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kXTakes; ++i) {
      const int row = job.rows_of_x[i], half = step * 2 + thread_id() % 2;  // kXFirst is even
      next.halves[i] = X{};
      if (row >= 0)
        next.halves[i] = X::template load<W::kK>(
            args.x + static_cast<u64>(row) * x_row_bytes<C>() + x_head_bytes<C>(job.row0), half);
    }
  }

  /// Stores `Columns` columns of a row, packed two per word, as units in shared memory.
  template <int Columns>
  FORGE_DEVICE static void store_pairs(Lds& lds, int buffer, int row, int column, const u32 (&pairs)[Columns / 2]) {
    FORGE_UNROLL
    for (int u = 0; u < Columns / 8; ++u)
      lds.units.set(place(buffer, 0) + unit_place(row, column / 8 + u),
                    U32x4{{pairs[4 * u], pairs[4 * u + 1], pairs[4 * u + 2], pairs[4 * u + 3]}});
  }
  /// Dequantises what the thread has loaded for a step and stores it in the buffer. Waits for the loads.
  template <int Buffer>
  FORGE_DEVICE static void store(Lds& lds, const Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kTakes; ++i) {
      const int take = i * kThreads + thread_id();
      if (kRows * kUnits % kThreads != 0 && take >= kRows * kUnits) continue;
      u32 pairs[W::kUnitColumns / 2];
      W::template expand<Numbers>(next.units[i], pairs);
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

  /// Multiplies the wave's tiles of a buffer: 32 columns of k, in two halves.
  template <int Buffer>
  FORGE_DEVICE static void multiply(const Lds& lds, int down, int across, Sums& sums) {
    const int down0 = place(Buffer, down * C::kTilesDown * T::kM),
              across0 = place(Buffer, kRows + across * kWaveTokens);
    // One factor's fragments all stay in registers while the other's are fetched one tile at a time. Which one stays is
    // chosen so that fewer registers are needed.
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
  static_assert(kAhead == 1 || kAhead == 2, "kStepsAhead must be 1 or 2");
  /// Issues all loads of a step.
  FORGE_DEVICE static void load_step(const Args& args, const Job& job, int step, Next& next) {
    load_units(args, job, step, next);
    load_halves(args, job, step, next);
  }

  /// One turn of the pipeline (see the sketch above): multiplies step `step`, which lies in `Buffer`. If More, issues
  /// the loads of step + kAhead and stores step + 1 in the other buffer. Near the end, the last step's loads are
  /// repeated instead of branching.
  template <int Buffer, bool More>
  FORGE_DEVICE static void turn(const Args& args, Lds& lds, const Job& job, int step, int down, int across,
                                Next (&next)[kAhead], Sums& sums) {
    barrier();
    if constexpr (More) {
      load_step(args, job, kAhead == 1 || step + kAhead < kSteps ? step + kAhead : kSteps - 1, next[Buffer % kAhead]);
      // Otherwise AMD's compiler moves the dequantisation, which waits for the loads, in front of the multiplication.
      keep_schedule();
    }
    multiply<Buffer>(lds, down, across, sums);
    if constexpr (More) {
      keep_schedule();
      store<1 - Buffer>(lds, next[(1 - Buffer) % kAhead]);
    }
  }

  /// Writes the sums of tokens 16 * Slice .. 16 * Slice + 15 to the output tile, if this wave has them.
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
  /// Runs the epilogue for 16 tokens at a time: the waves that have these tokens' sums write them to the output tile in
  /// shared memory, which all waves then read. Recursive, because indices of `sums` must be constants to stay
  /// registers.
  template <int Slice>
  FORGE_DEVICE static void finish_slices(const Args& args, Lds& lds, const Job& job, int thread, const Sums& sums) {
    if constexpr (Slice * kTokenTile < kTokens) {
      if (Slice * kTokenTile >= job.tokens) return;  // scalar: the same in all lanes
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

  /// Determines the block's job; false if there is nothing to do. Real tokens are rounded up to whole tiles of 16.
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
    // Without experts, the first weights are loaded before the producer has ended. With experts, the job depends on
    // what the router has written.
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
    // opaque: the epilogue's addresses are computed here instead of living in registers through the loop.
    finish_slices<0>(args, lds, job, opaque(thread_id()), sums);
  }
};

}  // namespace forge::gpu
