#pragma once
// What a block of a matmul by matrix instructions is, however it gets its factors (matmul_tiles.h, matmul_strips.h):
// out[t][n] = sum over k of w[n][k] * x[t][k]. Weights are in the layout `planes`; rows of x are 16-bit numbers, as
// their producer stores them or TileRows (tile_rows.h) makes them. A block computes kRows columns n for kTokens tokens
// t; a wave computes kTilesDown x kTilesAcross tiles of it, with f32 sums in registers:
//
//                      tokens ->   wave across 0   wave across 1            kWavesDown = 2, kWavesAcross = 2
//   columns n    wave down 0       wave 0          wave 2
//       |        wave down 1       wave 1          wave 3
//
// A step may have fewer tokens than a block: the block's other rows of x are zeros in shared memory, their sums are not
// stored, and no operand needs memory for them.
//
// k is processed in steps of kSlabs * 32 columns.
//
// Mixture of experts: the tokens of a block are slots that share an expert (slot_tiles.h).
//
// A grid with few tiles for the card has kSplits blocks for each: every one multiplies its part of k, and the last to
// arrive adds up their sums and goes on with the epilogue. So do the blocks with the columns of a tile of tokens, where
// the next norm wants the sum of squares of whole rows.

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
  static constexpr int kSlabs = 1;                        ///< slabs of 32 columns of k in a step
  static constexpr int kStages = 2;                       ///< buffers of the ring
  static constexpr int kTokensTogether = kTokenTile;      ///< tokens whose sums the epilogue finds in shared memory
  static constexpr int kSplits = 1;                       ///< blocks that share k
  static constexpr int kTotalStride = 1;                  ///< floats between the sums of squares of two rows of x
  /// Reads rows of x beyond the step's, which spares registers and, without asynchronous copies, instructions.
  static constexpr bool kReadsAllRows = !kAsyncCopies;
};

template <class C>
struct TileBlock {
  using W = typename C::Weight;
  using E = typename C::Epilogue;
  using T = typename C::Tile;
  using Numbers = NumbersOf<T>;
  static_assert(T::kLanes == kWave, "the tile is for another wave size");
  static constexpr int kRows = C::kWavesDown * C::kTilesDown * T::kM;
  static constexpr int kWaveTokens = C::kTilesAcross * T::kN, kTokens = C::kWavesAcross * kWaveTokens;
  static constexpr int kThreads = C::kWavesDown * C::kWavesAcross * kWave;
  static constexpr bool kExperts = C::kSlots > 0;
  static constexpr int kColumns = kExperts ? C::kColumns : W::kRows, kSlots = kExperts ? C::kSlots : 1;
  static_assert(W::kRows % kColumns == 0, "the weight's rows must be a multiple of kColumns");
  using Slots = SlotTiles<W::kRows / kColumns, kExperts ? kTokens : 1, kThreads>;
  static constexpr int kTokenTiles = kExperts ? Slots::most(C::kTokensTotal) : ceil_div(C::kTokensTotal, kTokens);
  static constexpr int kSplits = C::kSplits, kBlocks = ceil_div(kColumns, kRows) * kTokenTiles * kSplits;
  static constexpr int kSlab = 32, kStep = C::kSlabs * kSlab, kSteps = W::kK / kStep / kSplits, kStages = C::kStages;
  static constexpr int kTogether = C::kTokensTogether;
  static constexpr int kOperandsTogether = kTogether <= kTokenTile ? 1 : kAsyncCopies ? 32 : 16;  ///< LoadsTogether
  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(C::kHeads == 1 || (C::kHeadColumns % kRows == 0 && C::kHeads * C::kHeadColumns == kColumns),
                "a block's columns must lie in one head");
  static_assert(W::kK % (kStep * kSplits) == 0, "each block's part of k must be a multiple of the columns of a step");
  static_assert(kStages >= 2, "a buffer is multiplied while the next one is filled");
  static_assert(kWaveTokens % kTokenTile == 0 || kTokens == T::kN,
                "the tokens of a wave must be a multiple of 16, or a block as wide as one instruction");
  static_assert((kTogether % kTokenTile == 0 || kTogether == kTokens) && kTokens % kTogether == 0 &&
                    (kTogether % kWaveTokens == 0 || kWaveTokens % kTogether == 0),
                "the epilogue's tokens must be those of whole waves, or whole parts of them");
  static_assert(kStep % W::kUnitColumns == 0 && W::kUnitColumns % 8 == 0, "a step must be whole units of the weight");

  static constexpr int kUnits = kStep / W::kUnitColumns;  ///< units of a weight row in a step
  /// Units (of 8 columns) of a row of x in a step, and those of all rows that a thread loads.
  static constexpr int kXUnits = kStep / 8, kXTakes = ceil_div(kTokens * kXUnits, kThreads);
  static_assert(kThreads % kXUnits == 0, "a thread's units of x must have the same columns");

  /// With mma.sync, neighbouring lanes have sums of two tokens: four floats more keep them in different banks.
  static constexpr int kPadding = T::kN == 8 ? 4 : 0;
  using OutTile = Tile<kTogether, kRows, 1, kThreads, kPadding>;
  struct After {
    OutTile tile;
    Shared<u32, 1> last;
  };
  /// Shared memory: a ring of `Units` units of 16 bytes, and in its place, after the last step, the output tile.
  template <int Units, bool Experts = kExperts>
  struct Ring {
    union {
      Shared<U32x4, Units> units;
      After after;
    };
  };
  template <int Units>
  struct Ring<Units, true> : Ring<Units, false> {
    typename Slots::Lds slots;
  };
  using Args = TilesArgs<E, kExperts>;
  /// The block's part of the output: columns row0 .. of the weight that starts at row weight0 (the expert's first), and
  /// `tokens` rows of x and out from t0 on, or, with experts, the listed slots.
  struct Job {
    int row0, weight0, t0, tokens;
    int unit0;  ///< of a weight's row, where the block's part of k begins
    /// Where this thread's columns of x begin, in bytes (half the registers of an address). With experts for each of
    /// its rows, kNoRow if there is no such row; else for the first one, from which the others are at constant
    /// distances.
    u32 rows_of_x[kExperts ? kXTakes : 1];
  };
  using Sums = float[C::kTilesDown][C::kTilesAcross][T::Fragments::kC];
  /// Where a block is in the grid.
  struct Place {
    int split = block_of<C>() % kSplits, block = block_of<C>() / kSplits, tile = block % kTokenTiles;
  };

  /// The weight's row of a row of the block. Columns after the last one repeat it; their sums are ignored.
  FORGE_DEVICE static int weight_row(const Job& job, int row) {
    return job.weight0 + (kColumns % kRows == 0 || job.row0 + row < kColumns ? job.row0 + row : kColumns - 1);
  }
  /// The thread's i-th unit of x: its row; all of them have the same columns.
  FORGE_DEVICE static int x_row(int i) { return (i * kThreads + thread_id()) / kXUnits; }
  static constexpr u32 kNoRow = ~0u;
  /// Rows after the step's last ones may be read where memory has them, because each row has its own sums.
  static constexpr bool kReadsAllRows = C::kReadsAllRows && !kExperts && C::kTokensTotal % kTokens == 0;
  static_assert(static_cast<u64>(C::kTokensTotal) * C::kHeads * W::kK * 2 < kNoRow, "x must be smaller than 4 GiB");
  FORGE_DEVICE static bool is_row(const Job& job, int i) {
    if constexpr (kExperts)
      return job.rows_of_x[i] != kNoRow;
    else
      return kReadsAllRows || x_row(i) < job.tokens;
  }
  /// The row's columns of a step; a valid address even if there is no such row.
  FORGE_DEVICE static const u8* x_of(const Args& args, const Job& job, int i, int step) {
    const u32 first = job.rows_of_x[kExperts ? i : 0] + static_cast<u32>(step * (kStep * 2));
    const u32 behind = kExperts ? 0 : i * (kThreads / kXUnits * C::kHeads * W::kK * 2);
    if constexpr (kReadsAllRows) return args.x + first + static_cast<u64>(behind);  // all rows by one address
    return args.x + (is_row(job, i) ? first + behind : 0u);
  }
  FORGE_DEVICE static bool has_x(int i) { return kTokens * kXUnits % kThreads == 0 || x_row(i) < kTokens; }
  /// Copies the thread's units of x of a step to shared memory: unit `unit` of row `row` to index at(row, unit); zeros
  /// for rows that do not exist.
  template <class Lds, class At>
  FORGE_DEVICE static void copy_x(const Args& args, Lds& lds, const Job& job, int step, At&& at) {
    FORGE_UNROLL
    for (int i = 0; i < kXTakes; ++i)
      if (has_x(i)) lds.units.copy16(at(x_row(i), thread_id() % kXUnits), x_of(args, job, i, step), is_row(job, i));
  }
  /// The same through registers: loads them, stores them.
  FORGE_DEVICE static void load_x(const Args& args, const Job& job, int step, U32x4 (&x)[kXTakes]) {
    FORGE_UNROLL
    for (int i = 0; i < kXTakes; ++i) {
      x[i] = U32x4{};
      if (has_x(i) && is_row(job, i)) x[i] = load16(x_of(args, job, i, step));
    }
  }
  template <class Lds, class At>
  FORGE_DEVICE static void store_x(Lds& lds, const U32x4 (&x)[kXTakes], At&& at) {
    FORGE_UNROLL
    for (int i = 0; i < kXTakes; ++i)
      if (has_x(i)) lds.units.set(at(x_row(i), thread_id() % kXUnits), x[i]);
  }

  /// Where blocks share k: writes this block's sums, and lets the last block of the tile to arrive add up all of them,
  /// in the order of k. Returns true there.
  template <class Lds>
  FORGE_DEVICE static bool sum_splits(const Args& args, Lds& lds, int block, int split, Sums& sums) {
    constexpr int kQuads = C::kTilesDown * C::kTilesAcross * T::Fragments::kC / 4;
    float* own = args.partials + static_cast<u64>(block) * (kSplits * kQuads * kThreads * 4) + thread_id() * 4;
    each_quad(sums, [&](int quad, float& a, float& b, float& c, float& d) {
      *reinterpret_cast<F32x4*>(own + (split * kQuads + quad) * (kThreads * 4)) = F32x4{{a, b, c, d}};
    });
    if (!last_arrival(args.counters + block, kSplits, lds.after.last)) return false;
    FORGE_LOOP
    for (int part = 0; part < kSplits; ++part)
      each_quad(sums, [&](int quad, float& a, float& b, float& c, float& d) {
        const F32x4 four = load_fresh4(own + (part * kQuads + quad) * (kThreads * 4));
        a = (part > 0 ? a : 0.0f) + four.at[0];
        b = (part > 0 ? b : 0.0f) + four.at[1];
        c = (part > 0 ? c : 0.0f) + four.at[2];
        d = (part > 0 ? d : 0.0f) + four.at[3];
      });
    return true;
  }
  /// Calls each(number, four sums) for all sums of the lane.
  template <class Each>
  FORGE_DEVICE static void each_quad(Sums& sums, Each&& each) {
    constexpr int kOfTile = T::Fragments::kC / 4;
    FORGE_UNROLL
    for (int m = 0; m < C::kTilesDown; ++m) {
      FORGE_UNROLL
      for (int n = 0; n < C::kTilesAcross; ++n) {
        FORGE_UNROLL
        for (int i = 0; i < kOfTile; ++i) {
          float(&of)[T::Fragments::kC] = sums[m][n];
          each((m * C::kTilesAcross + n) * kOfTile + i, of[4 * i], of[4 * i + 1], of[4 * i + 2], of[4 * i + 3]);
        }
      }
    }
  }

  /// Writes the sums of tokens Part * kTogether .. to the output tile, if this wave has them or some of them.
  template <int Part, class Lds>
  FORGE_DEVICE static void hand_over(Lds& lds, int thread, const Sums& sums) {
    const int wave = uniform(thread / kWave), down = wave % C::kWavesDown, across = wave / C::kWavesDown;
    constexpr bool kWhole = kTogether >= kWaveTokens;  // whole waves, or a part of each wave's tokens
    constexpr int kTiles = (kWhole ? kWaveTokens : kTogether) / T::kN;
    constexpr int kFirst = kWhole ? 0 : Part * kTogether % kWaveTokens / T::kN;
    const bool has = kWhole ? across * kWaveTokens / kTogether == Part : across == Part * kTogether / kWaveTokens;
    if (!has) return;
    const int lane = thread % kWave, row0 = down * C::kTilesDown * T::kM;
    const int token0 = kWhole ? across * kWaveTokens % kTogether : 0;
    FORGE_UNROLL
    for (int m = 0; m < C::kTilesDown; ++m) {
      FORGE_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        FORGE_UNROLL
        for (int i = 0; i < T::Fragments::kC; ++i)
          lds.after.tile.set(token0 + n * T::kN + T::c_column(lane, i), row0 + m * T::kM + T::c_row(lane, i),
                             sums[m][kFirst + n][i]);
      }
    }
  }
  template <class Lds>
  FORGE_DEVICE static auto rows_of(const Lds& lds, const Job& job, int first) {
    if constexpr (kExperts)
      return RowsListed<kTokens>{lds.slots.slots, first, job.tokens};
    else
      return RowsCounted{job.t0 + first, job.tokens - first};
  }
  /// Runs the epilogue for kTogether tokens at a time: the waves that have these tokens' sums write them to the output
  /// tile in shared memory, which all waves then read. Recursive, because indices of `sums` must be constants to stay
  /// registers.
  template <int Part, class Lds>
  FORGE_DEVICE static void finish(const Args& args, Lds& lds, const Job& job, int thread, const Sums& sums) {
    if constexpr (Part * kTogether < kTokens) {
      if (Part * kTogether >= job.tokens) return;  // scalar: the same in all lanes
      const auto rows = rows_of(lds, job, Part * kTogether);
      Finish<E, OutTile, kColumns, decltype(rows), kOperandsTogether> finisher(args.epilogue, job.row0, rows, thread);
      finisher.prepare_older();
      finisher.prepare();
      hand_over<Part>(lds, thread, sums);
      if constexpr (E::kParts > 0)
        for (int t = thread; t < kTogether; t += kThreads)
          lds.after.tile.factors.set(
              t, E::inv_rms(load(args.totals + rows.clamped_row(t) / slots_of<E>() * C::kTotalStride)));
      barrier();
      finisher.run(lds.after.tile);
      barrier();
      finish<Part + 1>(args, lds, job, thread, sums);
    }
  }
  /// The last block that has columns of these tokens adds up the partial sums of squares of their results.
  template <class Lds>
  FORGE_DEVICE static void sum_rows(const Args& args, Lds& lds, const Job& job, int tile) {
    static_assert(!kExperts, "slots have no norms");
    if (last_arrival(args.counters + kBlocks / kSplits + tile, ceil_div(kColumns, kRows), lds.after.last))
      total_squares<squares_out_of<E>(), kThreads / kWave, kTokens>(E::squares_out(args.epilogue), job.t0, job.tokens);
  }
  /// Determines the block's job; false if there is nothing to do. Real tokens are rounded up to whole tiles of 16, or
  /// to all rows that memory has.
  template <class Lds>
  FORGE_DEVICE static bool find_job(const Args& args, Lds& lds, const Place& place, int real, Job& job) {
    job.row0 = place.block / kTokenTiles * kRows;
    job.unit0 = place.split * kSteps * kUnits;
    if constexpr (kExperts) {
      const auto found = Slots::find(args.sorted, place.tile, lds.slots);
      job.weight0 = found.expert * kColumns;
      job.tokens = found.count;
    } else {
      job.t0 = place.tile * kTokens;
      const int whole = whole_tiles(real), left = (whole < C::kTokensTotal ? whole : C::kTokensTotal) - job.t0;
      job.tokens = left < kTokens ? left : kTokens;
    }
    if (job.tokens <= 0) return false;
    const auto at = [&](int row) {
      if constexpr (C::kHeads > 1) row = row * C::kHeads + job.row0 / C::kHeadColumns;
      return static_cast<u32>(row) * (W::kK * 2) +
             static_cast<u32>(place.split * (kSteps * kStep * 2) + thread_id() % kXUnits * 16);
    };
    if constexpr (kExperts) {
      FORGE_UNROLL
      for (int i = 0; i < kXTakes; ++i) {
        const int t = x_row(i);
        job.rows_of_x[i] = t < job.tokens ? at(lds.slots.slots.get(t) / (C::kSharedX ? kSlots : 1)) : kNoRow;
      }
    } else {
      job.rows_of_x[0] = at(job.t0 + x_row(0));
    }
    return true;
  }

  /// What follows the last step: where blocks share k, one goes on with all sums; the epilogue; sums of squares.
  template <class Lds>
  FORGE_DEVICE static void end(const Args& args, Lds& lds, const Job& job, const Place& place, Sums& sums) {
    if constexpr (kSplits > 1) {
      if (!sum_splits(args, lds, place.block, place.split, sums)) return;
    }
    barrier();  // the output tile takes the ring's place
    // opaque: the epilogue's addresses are computed here instead of living in registers through the loop. The mask
    // tells the compiler again that the number is small and not negative.
    constexpr int kMask = power_of_two_from(kThreads) - 1;
    finish<0>(args, lds, job, opaque(thread_id()) & kMask, sums);
    if constexpr (squares_out_of<E>() > 0) sum_rows(args, lds, job, place.tile);
  }
};

}  // namespace forge::gpu
