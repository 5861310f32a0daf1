#pragma once
// Kernels without a matmul. FillRows produces rows from a source (loaded, gathered, summed over experts, or embeddings)
// and runs the fused epilogue (tile.h) on them. RmsNorm, LayerNorm, SplitInterleaved, Arrange and RopeTable are
// complete kernels. All are templates over a configuration C, whose members each comment lists.

#include "kernels/gpu/codes.h"
#include "kernels/gpu/grids.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

// Sources of FillRows. row(args, t) gives the source row of token t; it reads the step's inputs only. at(args, row,
// column) gives one element. kOlder: all data is older than the step (weights), so the kernel need not wait for its
// producer before it reads. kLoads: loads of an element; default 1.

/// Rows as they are. x: [tokens][RowFloats].
template <int RowFloats>
struct LoadedRows {
  struct Args {
    const float* x;
  };
  static constexpr bool kOlder = false;
  FORGE_DEVICE static int row(const Args&, int t) { return t; }
  FORGE_DEVICE static float at(const Args& args, int row, int column) {
    return load(args.x + static_cast<u64>(row) * RowFloats + column);
  }
};

/// The same rows, written by other blocks of the running kernel.
template <int RowFloats>
struct FreshRows : LoadedRows<RowFloats> {
  using Args = typename LoadedRows<RowFloats>::Args;
  FORGE_DEVICE static float at(const Args& args, int row, int column) {
    return load_fresh(args.x + static_cast<u64>(row) * RowFloats + column);
  }
};

/// Two matrices side by side: columns 0 .. Left-1 are left's, the rest are right's.
template <int Left, int LeftFloats, int RightFloats>
struct TwoRows {
  struct Args {
    const float *left, *right;
  };
  static constexpr bool kOlder = false;
  FORGE_DEVICE static int row(const Args&, int t) { return t; }
  FORGE_DEVICE static float at(const Args& args, int row, int column) {
    return column < Left ? load(args.left + static_cast<u64>(row) * LeftFloats + column)
                         : load(args.right + static_cast<u64>(row) * RightFloats + column - Left);
  }
};

/// Gathers row rows[t] of x.
template <int RowFloats>
struct GatheredRows {
  struct Args {
    const float* x;
    const i32* rows;
  };
  static constexpr bool kOlder = false;
  FORGE_DEVICE static int row(const Args& args, int t) { return load(args.rows + t); }
  FORGE_DEVICE static float at(const Args& args, int row, int column) {
    return load(args.x + static_cast<u64>(row) * RowFloats + column);
  }
};

/// Weighted sum of the outputs of a token's experts: x is [tokens][Slots][Columns], shares [tokens][Slots], in rows of
/// ShareFloats. Summed in the order in which the router chose the experts.
template <int Slots, int Columns, int ShareFloats = Slots>
struct SummedSlots {
  struct Args {
    const float *x, *shares;
  };
  static constexpr bool kOlder = false;
  static constexpr int kLoads = Slots;
  FORGE_DEVICE static int row(const Args&, int t) { return t; }
  FORGE_DEVICE static float at(const Args& args, int row, int column) { return sum<false>(args, row, column); }

 protected:
  template <bool kFresh>
  FORGE_DEVICE static float sum(const Args& args, int row, int column) {
    float sum = 0;
    FORGE_UNROLL
    for (int s = 0; s < Slots; ++s) {
      const float* slot = args.x + (static_cast<u64>(row) * Slots + s) * Columns + column;
      const float share = load(args.shares + static_cast<u64>(row) * ShareFloats + s);
      sum = fma_of(share, kFresh ? load_fresh(slot) : load(slot), sum);
    }
    return sum;
  }
};

/// The same rows, written by other blocks of the running kernel.
template <int Slots, int Columns, int ShareFloats>
struct FreshSlots : SummedSlots<Slots, Columns, ShareFloats> {
  using Summed = SummedSlots<Slots, Columns, ShareFloats>;
  FORGE_DEVICE static float at(const typename Summed::Args& args, int row, int column) {
    return Summed::template sum<true>(args, row, column);
  }
};

/// Embeddings: row ids[t] of a table in the layout `planes`; zeros if the table has no such row.
template <class Weight>
struct EmbeddedRows {
  struct Args {
    const u8* table;
    const i32* ids;
  };
  static constexpr bool kOlder = true;
  FORGE_DEVICE static int row(const Args& args, int t) { return load(args.ids + t); }
  FORGE_DEVICE static float at(const Args& args, int row, int column) {
    return row >= 0 && row < Weight::kRows ? Weight::element(args.table, row, column) : 0.0f;
  }
};

/// C::kLoads, or 1 if the source has no such member.
template <class Source>
FORGE_DEVICE constexpr int loads_of() {
  if constexpr (requires { Source::kLoads; })
    return Source::kLoads;
  else
    return 1;
}

/// Fills tiles of one token and kBlockRows columns from a source and runs the epilogue. C has Source, Epilogue,
/// kColumns, kBlockRows, kWaves, kTokensTotal (rows that memory has), kCount (the Count of real rows) and, if each of
/// those has several rows (experts, heads), kSlots. An epilogue with kOwnNorm > 0 gets 1/rms of the block's own
/// columns: these are the run that is normalised, a head or a row.
template <class C>
struct FillRows {
  using E = typename C::Epilogue;
  static constexpr int kThreads = C::kWaves * kWave;
  static constexpr int kColumnBlocks = ceil_div(C::kColumns, C::kBlockRows);
  static constexpr int kBlocks = kColumnBlocks * C::kTokensTotal;
  using OutTile = Tile<1, C::kBlockRows, 1, kThreads>;
  static constexpr int kOwnNorm = own_norm_of<E>(), kNorms = norms_of<E>();
  static_assert(kOwnNorm == 0 || (kOwnNorm == C::kBlockRows && C::kColumns >= kOwnNorm),
                "a block must have the columns of one run of the norm");
  // A block has few neighbours on its unit, or none, so each lane has to have many loads in flight.
  static constexpr int kLoadsTogether = 24;
  static constexpr int kTurns = ceil_div(C::kBlockRows, kThreads);  ///< columns of a lane
  static constexpr int kFillsTogether = in_equal_rounds(kTurns, kLoadsTogether / loads_of<typename C::Source>());
  static constexpr int kNormedTogether = in_equal_rounds(kTurns, 8);
  struct Lds {
    OutTile tile;
    alignas(16) Shared<float, 2 * C::kWaves> sums;  ///< so that a wide load of them does not reach into the tile
  };
  struct Args {
    typename C::Source::Args source;
    const i32* counts;
    typename E::Args epilogue;
  };

  /// Columns after the last one repeat it; the epilogue ignores them.
  FORGE_DEVICE static void fill(const Args& args, int row, int row0, Lds& lds) {
    for (int first = thread_id(); first < C::kBlockRows; first += kFillsTogether * kThreads) {
      float values[kFillsTogether];
      FORGE_UNROLL
      for (int i = 0; i < kFillsTogether; ++i) {
        const int column = row0 + first + i * kThreads;
        values[i] = C::Source::at(args.source, row, column < C::kColumns ? column : C::kColumns - 1);
      }
      FORGE_UNROLL
      for (int i = 0; i < kFillsTogether; ++i)
        if (first + i * kThreads < C::kBlockRows) lds.tile.set(0, first + i * kThreads, values[i]);
    }
  }
  /// Norm number I of the block's columns. Each lane reads and writes the columns that it has filled. factor: 1/rms of
  /// the norm before, and then of this one. Norms take turns with two regions for the waves' sums, so that none is
  /// overwritten while a slow wave still reads it.
  template <int I>
  FORGE_DEVICE static void normalise(const Args& args, int t, int row0, Lds& lds, float& factor) {
    constexpr int kSums = I % 2 * C::kWaves;
    float squares = 0;
    for (int first = thread_id(); first < C::kBlockRows; first += kNormedTogether * kThreads) {
      float values[kNormedTogether];
      FORGE_UNROLL
      for (int i = 0; i < kNormedTogether; ++i) {
        const int r = first + i * kThreads, inside = r < C::kBlockRows ? r : first;
        values[i] = lds.tile.get(0, inside);
        if constexpr (requires { E::kStaged; })
          values[i] = E::template before<I>(args.epilogue, t, row0 + inside, values[i], factor);
        if (r < C::kBlockRows) squares = fma_of(values[i], values[i], squares);
      }
      if constexpr (requires { E::kStaged; }) {
        FORGE_UNROLL
        for (int i = 0; i < kNormedTogether; ++i)
          if (first + i * kThreads < C::kBlockRows) lds.tile.set(0, first + i * kThreads, values[i]);
      }
    }
    squares = sum_lanes<kWave>(squares);
    if (lane_id() == 0) lds.sums.set(kSums + wave_id(), squares);
    barrier();
    float sum = 0;
    FORGE_UNROLL
    for (int w = 0; w < C::kWaves; ++w) sum += lds.sums.get(kSums + w);
    factor = E::inv_rms(sum);
    if constexpr (I + 1 < kNorms)
      normalise<I + 1>(args, t, row0, lds, factor);
    else if (thread_id() == 0)
      lds.tile.factors.set(0, factor);
  }
  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int t = block_of<C>() / kColumnBlocks, row0 = block_of<C>() % kColumnBlocks * C::kBlockRows;
    release_consumers();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, C::kCount, t / slots_of<C>())) return;
    const int row = C::Source::row(args.source, t);
    FinishRow finish(args.epilogue, row0, {t});
    finish.prepare_older();
    if constexpr (C::Source::kOlder) fill(args, row, row0, lds);
    wait_for_producer();
    finish_row(args, t, row, row0, lds, finish);
  }
  using FinishRow = Finish<E, OutTile, C::kColumns, RowsInOrder<C::kTokensTotal>, kLoadsTogether>;
  /// The part of a block's work after wait_for_producer().
  FORGE_DEVICE static void finish_row(const Args& args, int t, int row, int row0, Lds& lds) {
    FinishRow finish(args.epilogue, row0, {t});
    finish.prepare_older();
    finish_row(args, t, row, row0, lds, finish);
  }
  FORGE_DEVICE static void finish_row(const Args& args, int t, int row, int row0, Lds& lds, FinishRow finish) {
    finish.prepare();
    if constexpr (!C::Source::kOlder) fill(args, row, row0, lds);
    finish.set_factors(lds.tile);
    if constexpr (kOwnNorm > 0) {
      float factor = 1.0f;
      normalise<0>(args, t, row0, lds, factor);
    }
    barrier();
    finish.run(lds.tile);
  }
};

/// RMSNorm (arXiv 1910.07467): out = x / sqrt(mean(x^2) + kEpsilon) * weight, over parts of kDim neighbouring columns
/// (a whole row, or heads). One block per part and token. C has kColumns, kDim, kRowFloats and kOutFloats (row strides
/// of x and out, in floats), kWaves, kTokensTotal, kCount and kEpsilon.
template <class C>
struct RmsNorm {
  static constexpr int kThreads = C::kWaves * kWave, kParts = C::kColumns / C::kDim;
  static constexpr int kBlocks = kParts * C::kTokensTotal;
  static_assert(C::kColumns % C::kDim == 0, "kColumns must be a multiple of kDim");
  struct Lds {
    Shared<float, C::kWaves> sums;
  };
  struct Args {
    const float* x;
    const float* weight;  ///< [kDim]
    const i32* counts;
    float* out;
  };

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int t = block_id() / kParts, column = block_id() % kParts * C::kDim;
    release_consumers();
    wait_for_producer();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, C::kCount, t)) return;
    const float* x = args.x + static_cast<u64>(t) * C::kRowFloats + column;
    float* out = args.out + static_cast<u64>(t) * C::kOutFloats + column;
    float sum = 0;
    for (int i = thread_id(); i < C::kDim; i += kThreads) {
      const float value = load(x + i);
      sum = fma_of(value, value, sum);
    }
    sum = sum_lanes<kWave>(sum);
    if (lane_id() == 0) lds.sums.set(wave_id(), sum);
    barrier();
    float total = 0;
    FORGE_UNROLL
    for (int w = 0; w < C::kWaves; ++w) total += lds.sums.get(w);
    const float factor = inverse_sqrt_of(total / static_cast<float>(C::kDim) + C::kEpsilon);
    for (int i = thread_id(); i < C::kDim; i += kThreads) out[i] = load(x + i) * factor * load(args.weight + i);
  }
};

/// LayerNorm (arXiv 1607.06450): out = (x - mean) / sqrt(variance + kEpsilon) * weight + bias, over parts of kDim
/// columns. C has what RmsNorm needs, kShared (weight and bias are [kDim] and serve all parts, else [kColumns]) and
/// kBiased.
template <class C>
struct LayerNorm {
  static constexpr int kThreads = C::kWaves * kWave, kParts = C::kColumns / C::kDim;
  static constexpr int kBlocks = kParts * C::kTokensTotal;
  static_assert(C::kColumns % C::kDim == 0, "kColumns must be a multiple of kDim");
  using Sums = Shared<float, C::kWaves>;
  struct Lds {
    Sums sums, squares;
  };
  struct Args {
    const float *x, *weight;
    const float* bias;  ///< read only if kBiased
    const i32* counts;
    float* out;
  };

  /// Sum over all lanes of the block; all lanes get it. All lanes call this.
  FORGE_DEVICE static float sum_of_block(Sums& sums, float value) {
    const float sum = sum_lanes<kWave>(value);
    if (lane_id() == 0) sums.set(wave_id(), sum);
    barrier();
    float total = 0;
    FORGE_UNROLL
    for (int w = 0; w < C::kWaves; ++w) total += sums.get(w);
    return total;
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int t = block_id() / kParts, column = block_id() % kParts * C::kDim;
    release_consumers();
    wait_for_producer();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, C::kCount, t)) return;
    const float* x = args.x + static_cast<u64>(t) * C::kRowFloats + column;
    float* out = args.out + static_cast<u64>(t) * C::kOutFloats + column;
    float sum = 0, squares = 0;
    for (int i = thread_id(); i < C::kDim; i += kThreads) sum += load(x + i);
    const float mean = sum_of_block(lds.sums, sum) / static_cast<float>(C::kDim);
    for (int i = thread_id(); i < C::kDim; i += kThreads) {
      const float value = load(x + i) - mean;
      squares = fma_of(value, value, squares);
    }
    const float factor =
        inverse_sqrt_of(sum_of_block(lds.squares, squares) / static_cast<float>(C::kDim) + C::kEpsilon);
    const int first = C::kShared ? 0 : column;
    for (int i = thread_id(); i < C::kDim; i += kThreads) {
      const float value = (load(x + i) - mean) * factor * load(args.weight + first + i);
      out[i] = C::kBiased ? value + load(args.bias + first + i) : value;
    }
  }
};

/// Splits columns that alternate between kPartsCount parts every kUnit columns (the output of a merged weight) into one
/// matrix per part:
///
///   x        a0 a1 | b0 b1 | a2 a3 | b2 b3        kUnit = 2, kPartsCount = 2
///   parts    a0 a1 a2 a3   and   b0 b1 b2 b3
///
/// C has kUnit, kPartsCount, kColumns (of x), kRowFloats and kPartFloats (row strides), kThreads, kTokensTotal, kCount.
template <class C>
struct SplitInterleaved {
  static constexpr int kThreads = C::kThreads, kBlocks = C::kTokensTotal;
  struct Args {
    const float* x;
    const i32* counts;
    float* parts[C::kPartsCount];
  };
  FORGE_DEVICE static void run(const Args& args) {
    const int t = block_id();
    release_consumers();
    wait_for_producer();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, C::kCount, t)) return;
    const float* x = args.x + static_cast<u64>(t) * C::kRowFloats;
    for (int i = thread_id(); i < C::kColumns; i += kThreads) {
      const int unit = i / C::kUnit, part = unit % C::kPartsCount;
      const int column = unit / C::kPartsCount * C::kUnit + i % C::kUnit;
      FORGE_UNROLL
      for (int p = 0; p < C::kPartsCount; ++p)
        if (p == part) args.parts[p][static_cast<u64>(t) * C::kPartFloats + column] = load(x + i);
    }
  }
};

/// Builds each row from pieces of columns of other matrices. C has the type Pieces with a struct Args and
/// `static float at(const Args&, int t, int head, int column)`, kHeads, kWidth (columns of a head), kOutFloats (row
/// stride of out), kThreads, kTokensTotal and kCount.
template <class C>
struct Arrange {
  static constexpr int kThreads = C::kThreads, kColumns = C::kHeads * C::kWidth;
  static constexpr int kColumnBlocks = ceil_div(kColumns, kThreads), kBlocks = C::kTokensTotal * kColumnBlocks;
  struct Args {
    typename C::Pieces::Args pieces;
    const i32* counts;
    float* out;
  };
  FORGE_DEVICE static void run(const Args& args) {
    const int t = block_id() / kColumnBlocks, column = block_id() % kColumnBlocks * kThreads + thread_id();
    release_consumers();
    wait_for_producer();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, C::kCount, t)) return;
    if (column < kColumns)
      args.out[static_cast<u64>(t) * C::kOutFloats + column] =
          C::Pieces::at(args.pieces, t, column / C::kWidth, column % C::kWidth);
  }
};

/// cos and sin of an angle of up to about 10^9 radians, with an error of about 1e-9. The angle is reduced by multiples
/// of pi/2 in f64, with pi/2 as a sum of two doubles (Cody and Waite); Taylor polynomials are used for |r| <= pi/4.
FORGE_DEVICE void cos_sin(double angle, float* cosine, float* sine) {
  const double turns = angle * 0.63661977236758134308;
  const double rounded = static_cast<double>(static_cast<long long>(turns + (turns < 0 ? -0.5 : 0.5)));
  const double r = (angle - rounded * 1.57079632679489655800) - rounded * 6.12323399573676603587e-17;
  const double s = r * r;
  const double sin_r =
      r * (1 + s * (-1.0 / 6 + s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880 - s * (1.0 / 39916800))))));
  const double cos_r = 1 + s * (-0.5 + s * (1.0 / 24 + s * (-1.0 / 720 + s * (1.0 / 40320 - s * (1.0 / 3628800)))));
  const int quadrant = static_cast<int>(static_cast<long long>(rounded) & 3);
  const double c = quadrant % 2 == 0 ? cos_r : sin_r, z = quadrant % 2 == 0 ? sin_r : cos_r;
  *cosine = static_cast<float>(quadrant == 1 || quadrant == 2 ? -c : c);
  *sine = static_cast<float>(quadrant >= 2 ? -z : z);
}

/// RoPE's table: table[t][i] = (cos, sin) of positions[t] * frequencies[i], times a magnitude. Padding (position -1)
/// gets position 0's angles. C has kAngles (rotary dimensions / 2), kMagnitude, kThreads (any number), kTokensTotal and
/// kFactors: if true, the model file's factors divide the frequencies. Linear and YaRN scaling need no more code,
/// because they are multiplied into `frequencies` beforehand. If kTemperatureLength > 0, the magnitude is kMagnitude *
/// (1 + kTemperature * ln(1 + (position + kTemperatureOffset) / kTemperatureLength)), with the quotient rounded down.
template <class C>
struct RopeTable {
  static constexpr int kThreads = C::kThreads, kBlocks = C::kTokensTotal;
  struct Args {
    const i32* positions;
    const float* frequencies;  ///< [kAngles]
    const float* factors;      ///< [kAngles]; read only if kFactors
    const i32* counts;
    float* table;  ///< [tokens][kAngles][2]
  };
  FORGE_DEVICE static void run(const Args& args) {
    const int t = block_of<C>();
    release_consumers();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const int position = load(args.positions + t);
    float magnitude = C::kMagnitude;
    if constexpr (C::kTemperatureLength > 0) {
      constexpr float kLn2 = 0.693147181f;
      const int lengths = ((position < 0 ? 0 : position) + C::kTemperatureOffset) / C::kTemperatureLength;
      magnitude *= 1.0f + C::kTemperature * kLn2 * log2_of(static_cast<float>(1 + lengths));
    }
    wait_for_producer();
    for (int i = thread_id(); i < C::kAngles; i += kThreads) {
      float cosine, sine, frequency = load(args.frequencies + i);
      if constexpr (C::kFactors)
        frequency = static_cast<float>(static_cast<double>(frequency) / static_cast<double>(load(args.factors + i)));
      const double angle = static_cast<double>(position < 0 ? 0 : position) * static_cast<double>(frequency);
      cos_sin(angle, &cosine, &sine);
      float* at = args.table + (static_cast<u64>(t) * C::kAngles + i) * 2;
      at[0] = cosine * magnitude;
      at[1] = sine * magnitude;
    }
  }
};

}  // namespace forge::gpu
