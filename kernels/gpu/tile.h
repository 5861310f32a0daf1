#pragma once
// The output tile of a block, and the fused epilogue that takes it from shared memory to global memory.
//
// A kernel (matmul_rows.h, matmul_tiles.h, rows.h: the tile's "source") fills a tile in shared memory, f32
// [kTokens][kRows]: columns row0 .. row0+kRows-1 of the kernel's output for some tokens. "Row" is a row of the weight,
// which is a column of the output. Then the epilogue, which codegen/gpu/source/epilogue_source.cc generates from the
// fused graph nodes, computes and stores the results; 16 neighbouring lanes make 16 neighbouring results of a token:
//
//   struct Epilogue {
//     struct Args { ... };                         // pointers to operands and outputs
//     static constexpr int kIn;                    // source columns per 16 results: 16, or 32 for a GLU (gate and up)
//     static constexpr int kOperands;              // floats in memory that one result needs, besides the tile
//     static constexpr int kParts;                 // partial sums of squares per token; 0: no RMSNorm factor
//     static constexpr int kSlots;                 // source rows that share a token's squares (experts); default 1
//     // For matmuls by matrix instructions (matmul_tiles.h), whose last block adds up the partial sums of squares that
//     // run() has stored, and puts the total in the first one's place:
//     static constexpr int kSquaresOut;            // partial sums per token; default 0: totals are not wanted
//     static float* squares_out(const Args&);      // [tokens][kSquaresOut]
//     // For sources that are rows (rows.h):
//     static constexpr int kOwnNorm;               // columns of RMSNorms of the tile itself; default 0: none
//     static constexpr int kNorms;                 // how many such norms follow each other, with kOwnNorm; default 1
//     // The value that norm number I normalises, from that of the norm before (of the source) and that one's 1/rms.
//     // With kStaged; default: none, and the only norm is of the source.
//     static constexpr bool kStaged;
//     template <int I>
//     static float before(const Args&, int t, int c, float v, float factor);
//     static const float* squares(const Args&);    // [tokens][kParts], with kParts > 0
//     static float inv_rms(float sum);             // 1/rms from the sum of all squares, with kParts or kOwnNorm > 0
//     // Loads the operands of result n of token t, with kOperands > 0:
//     static void load(const Args&, int t, int n, int row0, float (&o)[kOperands]);
//     // Some of them are older than the step (weights, inputs). With kOlder these are not loaded by load(), but by
//     static void load_older(const Args&, int t, int n, int row0, float (&o)[kOperands]);
//     // Computes and stores result n of token t. in(c) reads column c of the source; factor is 1/rms of the token.
//     template <class In>
//     static void run(const Args&, int t, int n, int row0, bool real, float factor, const float (&o)[..], In&& in);
//   };
//
// Lanes with real == false take part in run's shuffles and store nothing. A kernel uses the class Finish like this:
//
//   finish.prepare_older();                     // or behind the wait, where a kernel has no work before it
//   wait_for_producer();  finish.prepare();     // issues loads of operands and squares; nothing waits for them yet
//   ... sums of the tile ...                    // the latency of those loads hides behind the weights'
//   tile.set(...);  finish.set_factors(tile);  barrier();  finish.run(tile);

#include "kernels/gpu/activations.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/kv_pool.h"
#include "kernels/gpu/step_io.h"

namespace forge::gpu {

/// max(count, 1): a length for arrays that may be empty.
FORGE_DEVICE constexpr int at_least_one(int count) {
  return count > 0 ? count : 1;
}

/// How many of `turns` a lane takes together, `most` or fewer, so that all rounds have about as many.
FORGE_DEVICE constexpr int in_equal_rounds(int turns, int most) {
  return most < 1 ? 1 : ceil_div(turns, ceil_div(turns, most));
}

inline constexpr int kTokenTile = 16;  ///< granularity in which rows after a step's real ones are skipped
/// Rows that are computed for this many real ones.
FORGE_DEVICE constexpr int whole_tiles(int real) {
  return ceil_div(real, kTokenTile) * kTokenTile;
}
/// True if row t0 lies in a tile of 16 rows that has no real token or row in this step; the block then ends. `which` is
/// the Count (step_io.h) that applies. Grids are made for the largest step, and real rows always come first. Rows
/// after the last real one, up to the end of its tile, are computed. All lanes call this.
FORGE_DEVICE bool idle_tile(const i32* counts, int which, int t0) {
  return t0 / kTokenTile * kTokenTile >= uniform(load(counts + which));
}

/// The tile in shared memory. If several waves share a column (each has a part of k), each sets its own partial sum,
/// and get() adds them in the order of the waves, so that results do not depend on timing.
/// Padding: floats between the rows of two tokens, where neighbouring lanes write different tokens.
template <int Tokens, int BlockRows, int Partials, int Threads, int Padding = 0>
class Tile {
 public:
  static constexpr int kTokens = Tokens, kRows = BlockRows, kThreads = Threads;

  FORGE_DEVICE float get(int t, int r) const {
    float sum = sums_.get(t * kStride + r);
    FORGE_UNROLL
    for (int p = 1; p < Partials; ++p) sum += sums_.get((p * Tokens + t) * kStride + r);
    return sum;
  }
  FORGE_DEVICE void set_partial(int p, int t, int r, float value) { sums_.set((p * Tokens + t) * kStride + r, value); }
  FORGE_DEVICE void set(int t, int r, float value) { set_partial(0, t, r, value); }

  Shared<float, Tokens> factors;  ///< 1/rms of each token

 private:
  static constexpr int kStride = BlockRows + Padding;
  Shared<float, Partials * Tokens * kStride> sums_;
};

/// E::kSlots, or 1 if the epilogue has no such member.
template <class E>
FORGE_DEVICE constexpr int slots_of() {
  if constexpr (requires { E::kSlots; })
    return E::kSlots;
  else
    return 1;
}

/// E::kOwnNorm, or 0 if the epilogue has no such member; E::kNorms, or 1.
template <class E>
FORGE_DEVICE constexpr int own_norm_of() {
  if constexpr (requires { E::kOwnNorm; })
    return E::kOwnNorm;
  else
    return 0;
}
template <class E>
FORGE_DEVICE constexpr int norms_of() {
  if constexpr (requires { E::kNorms; })
    return E::kNorms;
  else
    return 1;
}

/// Loads those operands of result n of token t that are older than the step.
template <class E>
FORGE_DEVICE void load_older(const typename E::Args& args, int t, int n, int row0, float (&operands)[E::kOperands]) {
  if constexpr (requires { E::kOlder; }) E::load_older(args, t, n, row0, operands);
}

/// E::kSquaresOut, or 0.
template <class E>
FORGE_DEVICE constexpr int squares_out_of() {
  if constexpr (requires { E::kSquaresOut; })
    return E::kSquaresOut;
  else
    return 0;
}

/// Maps row t of a tile to its row in memory: consecutive rows from t0 on.
template <int TokensTotal>
struct RowsInOrder {
  int t0;
  FORGE_DEVICE bool has(int t) const { return t0 + t < TokensTotal; }
  FORGE_DEVICE int row(int t) const { return t0 + t; }
  /// A row that is safe to load from: the last one if row t does not exist.
  FORGE_DEVICE int clamped_row(int t) const { return has(t) ? t0 + t : TokensTotal - 1; }
};

/// The same for `count` rows, which are counted when the kernel runs.
struct RowsCounted {
  int t0, count;
  FORGE_DEVICE bool has(int t) const { return t < count; }
  FORGE_DEVICE int row(int t) const { return t0 + t; }
  FORGE_DEVICE int clamped_row(int t) const { return t0 + (has(t) ? t : count - 1); }
};

/// Partial sums of squares of a token that each lane of a wave has: number lane, lane + kWave, ...
template <int Parts>
inline constexpr int kPartsOfLane = Parts > kWave ? (Parts + kWave - 1) / kWave : 1;
/// Loads them. Fresh: other blocks of the running kernel have written them. All lanes of a wave.
template <int Parts, bool Fresh = false>
FORGE_DEVICE void load_squares(const float* squares, float (&parts)[kPartsOfLane<Parts>]) {
  FORGE_UNROLL
  for (int i = 0; i < kPartsOfLane<Parts>; ++i) {
    const int part = i * kWave + lane_id();
    parts[i] = part >= Parts ? 0.0f : Fresh ? load_fresh(squares + part) : load(squares + part);
  }
}
/// Their sum, in all lanes.
template <int PartsOfLane>
FORGE_DEVICE float sum_squares(const float (&parts)[PartsOfLane]) {
  float sum = 0;
  FORGE_UNROLL
  for (int i = 0; i < PartsOfLane; ++i) sum += parts[i];
  return sum_lanes<kWave>(sum);
}

/// Rows whose sums total_squares loads together: its block works alone, so that each of its waits for memory shows.
FORGE_DEVICE constexpr int rows_together(int parts_of_lane) {
  return parts_of_lane <= 4 ? kTokenTile : parts_of_lane <= 8 ? 8 : parts_of_lane <= 16 ? 4 : 1;
}
/// Puts the sum of all partial sums of squares, which other blocks of the running kernel have written, in the first
/// one's place, for `count` rows from `first` on, at most Rows. All lanes of a block of so many waves.
template <int Parts, int Waves, int Rows>
FORGE_DEVICE void total_squares(float* squares, int first, int count) {
  constexpr int kOfWave = ceil_div(Rows, Waves), kMost = rows_together(kPartsOfLane<Parts>);
  constexpr int kTogether = kOfWave < kMost ? kOfWave : kMost;
  FORGE_LOOP
  for (int row = wave_id() * kTogether; row < count; row += Waves * kTogether) {
    float* of = squares + static_cast<u64>(first + row) * Parts;
    float parts[kTogether][kPartsOfLane<Parts>];
    FORGE_UNROLL
    for (int i = 0; i < kTogether; ++i)
      load_squares<Parts, true>(of + (row + i < count ? i : 0) * Parts, parts[i]);  // a row that exists
    FORGE_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      const float total = sum_squares(parts[i]);
      if (lane_id() == 0 && row + i < count) of[i * Parts] = total;
    }
  }
}

/// Runs the epilogue E over a tile of type T. Total: columns of the source. Rows: RowsInOrder, RowsCounted or
/// RowsListed.
/// Work is split into jobs: a job is 16 results of one token, made by 16 neighbouring lanes. If the block has fewer
/// threads than results, it makes several turns. LoadsTogether: operands that a lane may hold at once; as many turns
/// as that is enough for are loaded together, so that a block with few neighbours waits for memory once, not in every
/// turn.
template <class E, class T, int Total, class Rows, int LoadsTogether = 1>
class Finish {
 public:
  static constexpr int kResults = 16;
  static_assert(T::kRows % E::kIn == 0, "kRows must be a multiple of kIn: a block makes whole groups of 16 results");
  static constexpr int kGroups = T::kRows / E::kIn, kJobs = T::kTokens * kGroups;
  static constexpr int kTurns = ceil_div(kJobs * kResults, T::kThreads);
  static constexpr int kTogether = in_equal_rounds(kTurns, LoadsTogether / at_least_one(E::kOperands));
  static constexpr int kWaves = T::kThreads / kWave;
  static constexpr bool kOneToken = T::kTokens <= kWaves;  ///< each wave sums the squares of at most one token
  static constexpr int kResultsTotal = Total / E::kIn * kResults + (E::kIn == kResults ? Total % kResults : 0);
  static_assert(E::kIn == kResults || Total % E::kIn == 0, "the columns must be a multiple of kIn");

  FORGE_DEVICE Finish(const typename E::Args& args, int row0, const Rows& rows, int thread = thread_id())
      : args_(args), row0_(row0), thread_(thread), rows_(rows) {}

  /// Call before prepare(), where it pays before wait_for_producer(): issues loads of operands that are older than the
  /// step. All lanes.
  FORGE_DEVICE void prepare_older() {
    if constexpr (kTurns == kTogether) load_operands<true>(0);
  }

  /// Call after wait_for_producer() and before the tile's sums. Issues loads of operands (if all turns are loaded
  /// together, else run() loads them) and of squares; nothing here waits for them. All lanes.
  FORGE_DEVICE void prepare() {
    if constexpr (kTurns == kTogether) load_operands<false>(0);
    if constexpr (E::kParts > 0 && kOneToken) {
      if (wave_id() < T::kTokens) load_parts(wave_id(), parts_);
    }
  }

  /// Call after the tile's sums and before the barrier: writes 1/rms of each token to the tile. All lanes.
  FORGE_DEVICE void set_factors(T& tile) {
    if constexpr (E::kParts > 0) {
      const auto set = [&](int t, float factor) { tile.factors.set(t, factor); };
      if constexpr (kOneToken) {
        if (wave_id() < T::kTokens) set_factor(wave_id(), parts_, set);
      } else {
        each_factor<T::kTokens>(set);
      }
    }
  }

  /// Calls set(t, 1/rms) for tokens t < Count, each in one lane. A wave loads the squares of up to four tokens before
  /// it sums the first, to overlap the latencies. All lanes.
  template <int Count, class Set>
  FORGE_DEVICE void each_factor(Set set) {
    constexpr int kTokensOfWave = ceil_div(Count, kWaves), kTogether = kTokensOfWave < 4 ? kTokensOfWave : 4;
    FORGE_LOOP
    for (int first = wave_id(); first < Count; first += kTogether * kWaves) {
      float parts[kTogether][kPartsOfLane<E::kParts>] = {};
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i)
        if (Count % (kTogether * kWaves) == 0 || first + i * kWaves < Count) load_parts(first + i * kWaves, parts[i]);
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i)
        if (first + i * kWaves < Count) set_factor(first + i * kWaves, parts[i], set);
    }
  }

  /// Call after a barrier after the last write to the tile: runs the epilogue for all results. All lanes.
  FORGE_DEVICE void run(const T& tile) {
    for (int first = 0; first < kTurns; first += kTogether) {
      if constexpr (kTurns > kTogether) {
        load_operands<true>(first);
        load_operands<false>(first);
      }
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const Job job = job_of(first + i);
        float factor = 1.0f;
        if constexpr (E::kParts > 0 || own_norm_of<E>() > 0) factor = tile.factors.get(job.t);
        const int row0 = row0_, t = job.t;
        E::run(args_, rows_.row(t), job.n, row0, job.real, factor, operands_[i],
               [&](int column) { return tile.get(t, column - row0); });
      }
    }
  }

 private:
  struct Job {
    int t, n;   ///< row of the tile; column of the results
    bool real;  ///< false: outside the tile, the results or the real rows; takes part but stores nothing
  };
  FORGE_DEVICE Job job_of(int turn) const {
    const u32 index = static_cast<u32>(turn * T::kThreads + thread_), job = index / kResults;
    const bool inside = (turn + 1) * T::kThreads <= kJobs * kResults || job < kJobs;
    const int t = inside ? static_cast<int>(job / kGroups) : 0, lane = static_cast<int>(index % kResults);
    const int first = row0_ / E::kIn * kResults + (inside ? static_cast<int>(job % kGroups) * kResults : 0);
    const int n = first + lane;
    const bool real = inside && n < kResultsTotal && rows_.has(t);
    return {t, n < kResultsTotal ? n : kResultsTotal - 1, real};
  }
  FORGE_DEVICE void load_parts(int t, float (&parts)[kPartsOfLane<E::kParts>]) const {
    load_squares<E::kParts>(E::squares(args_) + rows_.clamped_row(t) / slots_of<E>() * E::kParts, parts);
  }
  template <class Set>
  FORGE_DEVICE static void set_factor(int t, const float (&parts)[kPartsOfLane<E::kParts>], Set& set) {
    const float factor = E::inv_rms(sum_squares(parts));
    if (lane_id() == 0) set(t, factor);
  }
  /// Loads the operands of kTogether turns from turn `first` on: those that are older than the step, or the others.
  template <bool Older>
  FORGE_DEVICE void load_operands(int first) {
    if constexpr (E::kOperands > 0) {
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const Job job = job_of(first + i);
        if constexpr (Older)
          load_older<E>(args_, rows_.clamped_row(job.t), job.n, row0_, operands_[i]);
        else
          E::load(args_, rows_.clamped_row(job.t), job.n, row0_, operands_[i]);
      }
    }
  }

  const typename E::Args& args_;
  int row0_, thread_;
  Rows rows_;
  float operands_[kTogether][at_least_one(E::kOperands)] = {};
  float parts_[kPartsOfLane<E::kParts>] = {};
};

// ---- Functions that generated epilogues call ----

/// *at = value, if real.
FORGE_DEVICE void store(float* at, float value, bool real) {
  if (real) *at = value;
}
/// Stores the sum of squares of 16 columns to *at. 16 neighbouring lanes hold the columns and call this together; the
/// next kernel's epilogue adds these partial sums up for RMSNorm.
FORGE_DEVICE void store_squares(float* at, float value, bool real) {
  const float sum = sum_lanes<kQuantBlock>(real ? value * value : 0.0f);
  if (real && thread_id() % kQuantBlock == 0) *at = sum;
}
/// One element of a pair rotated by RoPE (RoFormer, arXiv 2104.09864). `second` says which element `own` is; `other` is
/// the other one.
FORGE_DEVICE float rope(float own, float other, float cosine, float sine, bool second) {
  return second ? fma_of(other, sine, own * cosine) : fma_of(own, cosine, -(other * sine));
}
namespace detail {
/// The sums and differences of elements that are Bit, 2 * Bit, ... 16 columns apart.
template <int Bit>
FORGE_DEVICE float hadamard_sums(float value) {
  const float other = shuffle_xor<Bit>(value);
  value = (lane_id() & Bit) != 0 ? other - value : value + other;
  if constexpr (Bit < 16)
    return hadamard_sums<2 * Bit>(value);
  else
    return value;
}
}  // namespace detail
/// The lane's element of a run of 32 columns times the Hadamard matrix over sqrt(32) (ir/ops/hadamard.cc). 32
/// neighbouring lanes hold the columns and call this together.
FORGE_DEVICE float hadamard(float value) {
  return detail::hadamard_sums<1>(value) * 0.17677669529663687f;
}

}  // namespace forge::gpu
