#pragma once
// Decode attention of one row whose blocks make their own heads first: 1/rms, weight and RoPE of their query heads and,
// where the block sees the row's own position, of its KV head, whose key and value it stores. That saves the launch of
// a kernel whose work is a few thousand elements. Blocks that share a head make it each for themselves: the same bits,
// so it does not matter whose store of a key comes last, and no block reads what another one has made.
//
//   x      [row]: ... | query heads | ... | key heads | ... | value heads | ...      (the product of a merged weight)
//   wave   0: query head0      1: query head0 + 1      2: key of kv_head      3: value of kv_head       (kQueries = 2)
//
// With one row in the step all keys and values but its own are older than the step.

#include "kernels/gpu/attention_row.h"

namespace forge::gpu {

/// AttentionOf: Attention or AttentionHeadTiles.
template <template <class> class AttentionOf>
struct HeadsBefore {
  /// C has what AttentionOf needs, with one row, and: Heads, the epilogue of x's columns (tile.h, with kOwnNorm; it
  /// gives queries to in.keep), and kQueryColumn, kKeyColumn and kValueColumn, x's columns of the first head; -1: the
  /// epilogue stores no keys, or no values.
  template <class C>
  struct Kernel {
    using A = AttentionOf<C>;
    using E = typename C::Heads;
    static constexpr int kThreads = A::kThreads, kBlocks = A::kBlocks;
    static constexpr int kDim = A::kHeadDim, kQueries = A::kGroup;
    static constexpr int kStored = (C::kKeyColumn >= 0 ? 1 : 0) + (C::kValueColumn >= 0 ? 1 : 0);
    static constexpr int kRows = kQueries + kStored, kTurns = ceil_div(kRows, C::kWaves);  ///< a row is a wave's
    static constexpr int kOwn = kDim / kWave;                                              ///< columns of a lane
    static_assert(C::kTokensTotal == 1 && !A::kSparse, "one row, which sees all older positions");
    static_assert(E::kOwnNorm == kDim && E::kIn == 16 && A::kValueDim == kDim && kDim % kWave == 0,
                  "all heads have kDim columns, of which each lane has as many");
    struct Rows {
      Shared<F32x4, kRows * kDim / 4> values;  ///< [kRows][kDim] of x; then the queries, [kQueries][kDim]
    };
    struct Lds {
      union {
        typename A::Lds attention;
        Rows rows;
      };
    };
    // The queries are read while AttentionHeadTiles writes its own, behind these.
    static_assert(sizeof(typename A::Lds) == sizeof(typename A::Row::Lds) ||
                      sizeof(Rows) <= sizeof(typename A::Row::Lds),
                  "the queries lie where the attention's results will be");
    struct Args {
      const float* x;
      typename E::Args heads;
      typename A::Args attention;
    };

    /// Column `first` of x begins the wave's row. The epilogue reads its columns, and gives those of queries back.
    struct Columns {
      const Rows& rows;
      int at, first;
      float& query;
      FORGE_DEVICE float operator()(int column) const { return rows.values.scalar(at + column - first); }
      FORGE_DEVICE void keep(float value) const { query = value; }
    };

    /// Where the attention's queries come from (AttentionRow::StoredQueries).
    struct Queries {
      const Args& args;
      Lds& lds;

      FORGE_DEVICE static int first_column(const typename A::Job& job, int row) {
        if (row < kQueries) return C::kQueryColumn + (job.head0 + row) * kDim;
        return (row == kQueries && C::kKeyColumn >= 0 ? C::kKeyColumn : C::kValueColumn) + job.kv_head * kDim;
      }
      FORGE_DEVICE void make(const typename A::Job& job, bool sees_own) const {
        const int count = sees_own ? kRows : kQueries;
        float values[kTurns][kOwn], operands[kTurns][kOwn][at_least_one(E::kOperands)] = {}, queries[kTurns][kOwn] = {};
        float factors[kTurns];
        if constexpr (E::kOperands > 0) {
          FORGE_UNROLL
          for (int turn = 0; turn < kTurns; ++turn) {
            const int row = wave_id() + turn * C::kWaves, first = first_column(job, row < count ? row : 0);
            FORGE_UNROLL
            for (int i = 0; i < kOwn; ++i)
              load_older<E>(args.heads, job.t, first + i * kWave + lane_id(), first, operands[turn][i]);
          }
        }
        wait_for_producer();
        FORGE_UNROLL
        for (int turn = 0; turn < kTurns; ++turn) {
          const int row = wave_id() + turn * C::kWaves, first = first_column(job, row < count ? row : 0);
          FORGE_UNROLL
          for (int i = 0; i < kOwn; ++i) {
            const int column = first + i * kWave + lane_id();
            values[turn][i] = load(args.x + column);
            if constexpr (E::kOperands > 0) E::load(args.heads, job.t, column, first, operands[turn][i]);
          }
        }
        FORGE_UNROLL
        for (int turn = 0; turn < kTurns; ++turn) {
          const int row = wave_id() + turn * C::kWaves;
          float squares = 0;
          FORGE_UNROLL
          for (int i = 0; i < kOwn; ++i) {
            squares = fma_of(values[turn][i], values[turn][i], squares);
            if (row < count) lds.rows.values.set_scalar(row * kDim + i * kWave + lane_id(), values[turn][i]);
          }
          factors[turn] = E::inv_rms(sum_lanes<kWave>(squares));
        }
        barrier();
        FORGE_UNROLL
        for (int turn = 0; turn < kTurns; ++turn) {
          const int row = wave_id() + turn * C::kWaves;
          if (row >= count) continue;
          const int first = first_column(job, row);
          FORGE_UNROLL
          for (int i = 0; i < kOwn; ++i)
            E::run(args.heads, job.t, first + i * kWave + lane_id(), first, true, factors[turn], operands[turn][i],
                   Columns{lds.rows, row * kDim, first, queries[turn][i]});
        }
        barrier();
        FORGE_UNROLL
        for (int turn = 0; turn < kTurns; ++turn) {
          const int row = wave_id() + turn * C::kWaves;
          FORGE_UNROLL
          for (int i = 0; i < kOwn; ++i)
            if (row < kQueries) lds.rows.values.set_scalar(row * kDim + i * kWave + lane_id(), queries[turn][i]);
        }
        barrier();
      }
      FORGE_DEVICE F32x4 four(const typename A::Job&, int head, int dim) const {
        return lds.rows.values.get((head * kDim + dim) / 4);
      }
      FORGE_DEVICE void done() const { barrier(); }
    };

    FORGE_DEVICE static void run(const Args& args, Lds& lds) {
      release_consumers();
      A::run_block(args.attention, lds.attention, block_id(), Queries{args, lds});
    }
  };
};

}  // namespace forge::gpu
