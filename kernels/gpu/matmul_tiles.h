#pragma once
// Matmul by matrix instructions of many tokens (GEMM, for prefill). What a block is: tile_block.h.
//
// Shared memory has a ring of kStages buffers, each for one step of k: slabs of [row][32] (matrix_tile.h: units), kRows
// weight rows first and kTokens rows of x after them. What is 16 bits wide in memory (x, weights in BF16 and F16) is
// copied into the ring as it is: asynchronously, kStages - 1 steps ahead, where the target can, else through registers.
// Other weights go through registers, where they are dequantised to F16 (BF16 if the tile is of BF16). A step needs one
// barrier:
//
//   turn s:   wait for the copies of step s | barrier | issue copies of step s + kStages - 1, loads of step s + 1 |
//             multiply step s | store what was loaded for step s + 1
//
// Without asynchronous copies, turn s ends with the loads of step s + 2 instead. The barrier makes step s complete, and
// it is also what allows the buffer of step s - 1 to be overwritten: all waves have multiplied it in turn s - 1. It is
// one of shared memory only, so loads stay under way across it.
//
// Order of a sum: steps of 32 columns in ascending k (of each part, then the parts), within a step as the target's
// instruction adds. It depends on the configuration only, never on the number of tokens in a step.

#include "kernels/gpu/tile_block.h"

namespace forge::gpu {

template <class C>
struct MatmulTiles : TileBlock<C> {
  using Block = TileBlock<C>;
  using Block::find_job, Block::kExperts, Block::kRows, Block::kStages, Block::kStep, Block::kSteps, Block::kThreads,
      Block::kTokens, Block::kUnits, Block::kWaveTokens, Block::kXTakes, Block::load_x, Block::weight_row;
  using typename Block::Args, typename Block::Job, typename Block::Numbers, typename Block::Sums, typename Block::T,
      typename Block::W;
  static_assert(T::kK * kHalves == Block::kSlab && Block::kSlab % W::kUnitColumns == 0,
                "32 columns must be two instructions and whole units of the weight");
  static constexpr int kTakes = ceil_div(kRows * kUnits, kThreads);  ///< units of weights that a thread loads
  /// Whether weights are copied as they are.
  static constexpr bool kCopiesWeights = kAsyncCopies && is_tile_type<W>();
  static constexpr int kBufferUnits = C::kSlabs * (kRows + kTokens) * kUnitsOfRow;
  using Lds = typename Block::template Ring<kStages * kBufferUnits>;
  /// A thread's share of a later step, on its way from global memory to registers.
  struct Next {
    typename W::Unit units[kTakes];
    U32x4 x[kXTakes];
  };

  /// Index of the first unit of a row in shared memory. Rows 0 .. kRows-1 are weights, then come the tokens.
  FORGE_DEVICE static constexpr int place(int stage, int slab, int row) {
    return stage * kBufferUnits + (slab * (kRows + kTokens) + row) * kUnitsOfRow;
  }
  /// Index of the unit of 8 columns number `unit` of a step.
  FORGE_DEVICE static constexpr int unit_at(int stage, int row, int unit) {
    return place(stage, unit / kUnitsOfRow, 0) + unit_place(row, unit % kUnitsOfRow);
  }

  /// The thread's i-th unit of weights, counted over the block's rows; false if it has none.
  FORGE_DEVICE static bool has_take(int i) {
    return kRows * kUnits % kThreads == 0 || i * kThreads + thread_id() < kRows * kUnits;
  }
  FORGE_DEVICE static void load_units(const Args& args, const Job& job, int step, Next& next) {
    if constexpr (!kCopiesWeights) {
      FORGE_UNROLL
      for (int i = 0; i < kTakes; ++i) {
        const int take = i * kThreads + thread_id();
        if (has_take(i))
          next.units[i] =
              W::load_unit(args.weights, weight_row(job, take / kUnits), job.unit0 + step * kUnits + take % kUnits);
      }
    }
  }
  FORGE_DEVICE static void copy_units(const Args& args, Lds& lds, const Job& job, int step, int stage) {
    if constexpr (kCopiesWeights) {
      FORGE_UNROLL
      for (int i = 0; i < kTakes; ++i) {
        const int take = i * kThreads + thread_id(), row = take / kUnits, unit = take % kUnits;
        if (has_take(i))
          lds.units.copy16(unit_at(stage, row, unit),
                           W::unit_address(args.weights, weight_row(job, row), job.unit0 + step * kUnits + unit), true);
      }
    }
  }
  FORGE_DEVICE static void copy_x(const Args& args, Lds& lds, const Job& job, int step, int stage) {
    Block::copy_x(args, lds, job, step, [&](int row, int unit) { return unit_at(stage, kRows + row, unit); });
  }
  /// Issues the copies of a step.
  FORGE_DEVICE static void copy_step(const Args& args, Lds& lds, const Job& job, int step, int stage) {
    copy_units(args, lds, job, step, stage);
    copy_x(args, lds, job, step, stage);
  }
  /// Issues the loads of a step to registers.
  FORGE_DEVICE static void load_step(const Args& args, const Job& job, int step, Next& next) {
    load_units(args, job, step, next);
    if constexpr (!kAsyncCopies) load_x(args, job, step, next.x);
  }
  /// Stores what the thread has loaded for a step in a buffer; dequantises weights. Waits for the loads.
  FORGE_DEVICE static void store(Lds& lds, const Next& next, int stage) {
    if constexpr (!kCopiesWeights) {
      FORGE_UNROLL
      for (int i = 0; i < kTakes; ++i) {
        if (!has_take(i)) continue;
        const int take = i * kThreads + thread_id();
        u32 pairs[W::kUnitColumns / 2];
        W::template expand<Numbers>(next.units[i], pairs);
        FORGE_UNROLL
        for (int u = 0; u < W::kUnitColumns / 8; ++u)
          lds.units.set(unit_at(stage, take / kUnits, take % kUnits * (W::kUnitColumns / 8) + u),
                        U32x4{{pairs[4 * u], pairs[4 * u + 1], pairs[4 * u + 2], pairs[4 * u + 3]}});
      }
    }
    if constexpr (!kAsyncCopies)
      Block::store_x(lds, next.x, [&](int row, int unit) { return unit_at(stage, kRows + row, unit); });
  }

  /// Multiplies the wave's tiles of a slab: 32 columns of k, in two halves.
  FORGE_DEVICE static void multiply_slab(const Lds& lds, int slab0, int down, int across, Sums& sums) {
    const int down0 = slab0 + down * C::kTilesDown * T::kM * kUnitsOfRow,
              across0 = slab0 + (kRows + across * kWaveTokens) * kUnitsOfRow;
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

  FORGE_DEVICE static void multiply(const Lds& lds, int stage, int down, int across, Sums& sums) {
    FORGE_UNROLL
    for (int slab = 0; slab < C::kSlabs; ++slab) multiply_slab(lds, place(stage, slab, 0), down, across, sums);
  }

  /// Whether loads to registers begin before the product of the step before theirs. With large tiles there are none
  /// left for loads across the barrier; they suffice where x takes the same way.
  static constexpr bool kLoadsInTurn = kAsyncCopies;
  /// One turn of the pipeline (see the sketch above) for step `step`, which is in buffer `stage`. More: another step
  /// follows.
  template <bool More>
  FORGE_DEVICE static void turn(const Args& args, Lds& lds, const Job& job, int step, int stage, int down, int across,
                                Next& next, Sums& sums) {
    if constexpr (kAsyncCopies) wait_copies_but<kStages - 2>();
    barrier_shared();
    if constexpr (kAsyncCopies && More) {
      if (step + kStages - 1 < kSteps)
        copy_step(args, lds, job, step + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      commit_copies();  // an empty group near the end, so that the number of groups tells the step
    }
    if constexpr (kLoadsInTurn && More) load_step(args, job, step + 1, next);
    // Many tiles of experts have few slots: waves whose slots do not exist multiply nothing. The condition is scalar.
    if (!kExperts || across * kWaveTokens < job.tokens) multiply(lds, stage, down, across, sums);
    if constexpr (More) {
      // Otherwise AMD's compiler moves the dequantisation, which waits for the loads, in front of the multiplication.
      keep_schedule();
      store(lds, next, stage + 1 == kStages ? 0 : stage + 1);
      if (!kLoadsInTurn && step + 2 < kSteps) load_step(args, job, step + 2, next);
      keep_schedule();
    }
  }
  /// Multiplies all steps. The first kStages - 1 are under way, and the first is stored.
  FORGE_DEVICE static void multiply_all(const Args& args, Lds& lds, const Job& job, int down, int across, Next& next,
                                        Sums& sums) {
    if constexpr (kStages == 2) {  // buffers are constants, which saves the computation of addresses
      FORGE_LOOP
      for (int step = 0; step + 2 < kSteps; step += 2) {
        turn<true>(args, lds, job, step, 0, down, across, next, sums);
        turn<true>(args, lds, job, step + 1, 1, down, across, next, sums);
      }
      if constexpr (kSteps % 2 == 0) turn<true>(args, lds, job, kSteps - 2, 0, down, across, next, sums);
      turn<false>(args, lds, job, kSteps - 1, 1 - kSteps % 2, down, across, next, sums);
    } else {
      int stage = 0;
      FORGE_LOOP
      for (int step = 0; step + 1 < kSteps; ++step) {
        turn<true>(args, lds, job, step, stage, down, across, next, sums);
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
      turn<false>(args, lds, job, kSteps - 1, stage, down, across, next, sums);
    }
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const typename Block::Place in_grid;
    const int real = uniform(load(args.counts + C::kCount));
    if (!kExperts && in_grid.tile * kTokens >= real) return;
    const int down = wave_id() % C::kWavesDown, across = wave_id() / C::kWavesDown;
    Job job{};
    Next next;
    // Without experts, the first weights are loaded before the producer has ended. With experts, the job depends on
    // what the router has written.
    constexpr int kUnderWay = kStages - 1 < kSteps ? kStages - 1 : kSteps;
    if constexpr (kExperts) {
      release_consumers();
      wait_for_producer();
      if (!find_job(args, lds, in_grid, real, job)) return;
    } else {
      find_job(args, lds, in_grid, real, job);
    }
    load_units(args, job, 0, next);
    FORGE_UNROLL
    for (int s = 0; s < kUnderWay; ++s) copy_units(args, lds, job, s, s);
    if constexpr (!kExperts) {
      release_consumers();
      wait_for_producer();
    }
    if constexpr (kAsyncCopies) {
      FORGE_UNROLL
      for (int s = 0; s < kStages - 1; ++s) {
        if (s < kUnderWay) copy_x(args, lds, job, s, s);
        commit_copies();
      }
    } else {
      load_x(args, job, 0, next.x);
    }
    store(lds, next, 0);
    if constexpr (!kLoadsInTurn && kSteps > 1) load_step(args, job, 1, next);
    Sums sums = {};
    multiply_all(args, lds, job, down, across, next, sums);
    Block::end(args, lds, job, in_grid, sums);
  }
};

}  // namespace forge::gpu
