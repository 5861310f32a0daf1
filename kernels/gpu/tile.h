#pragma once
// The tile that a block of the grid makes, and the way from there to memory. A source (matmul_rows.h, rows.h) fills a
// tile in shared memory, [kTokens][kRows] f32: columns row0 .. row0+kRows-1 of the step's kTotal for tokens t0 and on.
// The step's epilogue, generated from the fused graph nodes, takes it from there, 16 lanes for 16 results of a token:
//
//   struct Epilogue {
//     struct Args { ... };                         pointers
//     static constexpr int kIn;                    columns that 16 results are made from: 16, or 32 where two meet
//     static constexpr int kOperands;              numbers of memory that a result needs
//     static constexpr int kParts;                 partial sums of squares a token; 0: no factor 1/rms
//     static constexpr int kSlots;                 rows of the source that share a token's squares; 1 where it is
//     missing static const float* squares(const Args&);    [tokens][kParts] static float inv_rms(float sum); static
//     void load(const Args&, int t, int n, float (&o)[..]);      operands of result n of token t template <class In>
//     static void run(const Args&, int t, int n, int row0, bool real, float factor, const float
//                                         (&o)[..], In&& in);
//   };
// run: in(c) is column c of the source; lanes that are not `real` go along and write nothing. Operands are loaded
// before the tile is made, where a lane has one result: their latency hides behind the weights'.

#include "kernels/gpu/activations.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/step_io.h"

namespace forge::gpu {

FORGE_DEVICE constexpr int at_least_one(int count) {
  return count > 0 ? count : 1;
}

/// Rows of the grid's tiles past the step's real tokens or rows are skipped, whole tiles of 16 of them. All lanes.
inline constexpr int kTokenTile = 16;
FORGE_DEVICE bool idle_tile(const i32* counts, int which, int t0) {
  return t0 / kTokenTile * kTokenTile >= uniform(load(counts + which));
}

/// Waves that share a column leave partial sums, and get() adds them in order.
template <int Tokens, int BlockRows, int Partials, int Threads>
class Tile {
 public:
  static constexpr int kTokens = Tokens, kRows = BlockRows, kThreads = Threads;

  FORGE_DEVICE float get(int t, int r) const {
    float sum = sums_.get(t * BlockRows + r);
    FORGE_UNROLL
    for (int p = 1; p < Partials; ++p) sum += sums_.get((p * Tokens + t) * BlockRows + r);
    return sum;
  }
  FORGE_DEVICE void set_partial(int p, int t, int r, float value) {
    sums_.set((p * Tokens + t) * BlockRows + r, value);
  }
  FORGE_DEVICE void set(int t, int r, float value) { set_partial(0, t, r, value); }

  Shared<float, Tokens> factors;  ///< 1/rms of each token

 private:
  Shared<float, Partials * Tokens * BlockRows> sums_;
};

template <class E>
FORGE_DEVICE constexpr int slots_of() {
  if constexpr (requires { E::kSlots; })
    return E::kSlots;
  else
    return 1;
}

/// Where a tile's rows are in memory: one behind the other.
template <int TokensTotal>
struct RowsInOrder {
  int t0;
  FORGE_DEVICE bool has(int t) const { return t0 + t < TokensTotal; }
  FORGE_DEVICE int row(int t) const { return t0 + t; }
  /// To load from: the last row in place of one that is not there.
  FORGE_DEVICE int near(int t) const { return has(t) ? t0 + t : TokensTotal - 1; }
};

/// Takes a tile through the epilogue E. Total: columns of the source; Rows: as RowsInOrder.
template <class E, class T, int Total, class Rows>
class Finish {
 public:
  static constexpr int kResults = 16;
  static_assert(T::kRows % E::kIn == 0, "a block makes whole groups of 16 results");
  static constexpr int kGroups = T::kRows / E::kIn, kJobs = T::kTokens * kGroups;
  static constexpr int kTurns = ceil_div(kJobs * kResults, T::kThreads);
  static constexpr int kWaves = T::kThreads / kWave;
  static constexpr bool kOneToken = T::kTokens <= kWaves;  ///< a wave sums the squares of one token at most
  static constexpr int kPartsOfLane = at_least_one(ceil_div(E::kParts, kWave));
  static constexpr int kResultsTotal = Total / E::kIn * kResults + (E::kIn == kResults ? Total % kResults : 0);
  static_assert(E::kIn == kResults || Total % E::kIn == 0, "columns that meet come in whole groups");

  FORGE_DEVICE Finish(const typename E::Args& args, int row0, const Rows& rows, int thread = thread_id())
      : args_(args), row0_(row0), thread_(thread), rows_(rows) {}

  /// Between waiting for the producer and making the tile. All lanes. Nothing here waits for what it loads.
  FORGE_DEVICE void prepare() {
    if constexpr (E::kOperands > 0 && kTurns == 1) load_operands(job_of(0));
    if constexpr (E::kParts > 0 && kOneToken) {
      if (wave_id() < T::kTokens) load_parts(wave_id(), parts_);
    }
  }

  /// Behind the tile's sums, before the barrier. All lanes.
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

  /// set(t, 1/rms) for tokens t < Count, each in one lane. All lanes; what some tokens need is loaded before any is
  /// summed.
  template <int Count, class Set>
  FORGE_DEVICE void each_factor(Set set) {
    constexpr int kTokensOfWave = ceil_div(Count, kWaves), kTogether = kTokensOfWave < 4 ? kTokensOfWave : 4;
    FORGE_LOOP
    for (int first = wave_id(); first < Count; first += kTogether * kWaves) {
      float parts[kTogether][kPartsOfLane] = {};
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i)
        if (Count % (kTogether * kWaves) == 0 || first + i * kWaves < Count) load_parts(first + i * kWaves, parts[i]);
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i)
        if (first + i * kWaves < Count) set_factor(first + i * kWaves, parts[i], set);
    }
  }

  /// After a barrier behind the tile's last set. All lanes.
  FORGE_DEVICE void run(const T& tile) {
    for (int turn = 0; turn < kTurns; ++turn) {
      const Job job = job_of(turn);
      if constexpr (E::kOperands > 0 && kTurns > 1) load_operands(job);
      float factor = 1.0f;
      if constexpr (E::kParts > 0) factor = tile.factors.get(job.t);
      const int row0 = row0_, t = job.t;
      E::run(args_, rows_.row(t), job.n, row0, job.real, factor, operands_,
             [&](int column) { return tile.get(t, column - row0); });
    }
  }

 private:
  struct Job {
    int t, n;  ///< of the tile; of the results
    bool real;
  };
  FORGE_DEVICE Job job_of(int turn) const {
    const int index = turn * T::kThreads + thread_, job = index / kResults, lane = index % kResults;
    const bool inside = job < kJobs;
    const int t = inside ? job / kGroups : 0;
    const int first = row0_ / E::kIn * kResults + (inside ? job % kGroups * kResults : 0), n = first + lane;
    const bool real = inside && n < kResultsTotal && rows_.has(t);
    return {t, n < kResultsTotal ? n : kResultsTotal - 1, real};
  }
  /// Partial sums of squares of token t, every kWave-th from the lane's on.
  FORGE_DEVICE void load_parts(int t, float (&parts)[kPartsOfLane]) const {
    const int token = rows_.near(t);
    FORGE_UNROLL
    for (int i = 0; i < kPartsOfLane; ++i) {
      const int part = i * kWave + lane_id();
      parts[i] = part < E::kParts ? load(E::squares(args_) + token / slots_of<E>() * E::kParts + part) : 0.0f;
    }
  }
  template <class Set>
  FORGE_DEVICE static void set_factor(int t, const float (&parts)[kPartsOfLane], Set& set) {
    float sum = 0;
    FORGE_UNROLL
    for (int i = 0; i < kPartsOfLane; ++i) sum += parts[i];
    sum = sum_lanes<kWave>(sum);
    if (lane_id() == 0) set(t, E::inv_rms(sum));
  }
  FORGE_DEVICE void load_operands(const Job& job) { E::load(args_, rows_.near(job.t), job.n, row0_, operands_); }

  const typename E::Args& args_;
  int row0_, thread_;
  Rows rows_;
  float operands_[at_least_one(E::kOperands)] = {};
  float parts_[kPartsOfLane] = {};
};

// ---- what generated epilogues call ----

FORGE_DEVICE void store(float* at, float value, bool real) {
  if (real) *at = value;
}
/// at: where the block's partial sum goes; 16 lanes hold its columns.
FORGE_DEVICE void store_squares(float* at, float value, bool real) {
  const float sum = sum_lanes<kQuantBlock>(real ? value * value : 0.0f);
  if (real && thread_id() % kQuantBlock == 0) *at = sum;
}
/// The first, or second, of a pair turned by RoPE (RoFormer, arXiv 2104.09864).
FORGE_DEVICE float rope(float own, float other, float cosine, float sine, bool second) {
  return second ? fma_of(other, sine, own * cosine) : fma_of(own, cosine, -(other * sine));
}

/// A layer's pool of keys or values, [block][kv_heads][block_tokens][head_dim] f16.
template <int KvHeads, int HeadDim, int BlockTokens>
struct KvPool {
  static constexpr int kKvHeads = KvHeads, kHeadDim = HeadDim, kBlockTokens = BlockTokens;
  FORGE_DEVICE static u64 index(int slot, int head, int dim) {
    const u64 block = static_cast<u64>(slot / BlockTokens);
    return ((block * KvHeads + head) * BlockTokens + slot % BlockTokens) * HeadDim + dim;
  }
  /// The token's place in the pool, as the bits of an operand; -1 for padding.
  FORGE_DEVICE static float slot_bits(const i32* positions, const i32* sequences, const i32* tables, int table_blocks,
                                      int t) {
    const int position = load(positions + t);
    if (position < 0) return __builtin_bit_cast(float, -1);
    const i32* table = tables + static_cast<u64>(load(sequences + t)) * table_blocks;
    return __builtin_bit_cast(float, load(table + position / BlockTokens) * BlockTokens + position % BlockTokens);
  }
  /// column: of the KV heads' columns of one token.
  FORGE_DEVICE static void store(u16* pool, float slot_bits, int column, float value, bool real) {
    const int slot = __builtin_bit_cast(int, slot_bits);
    if (real && slot >= 0) pool[index(slot, column / HeadDim, column % HeadDim)] = f16_of_f32(value);
  }
};

}  // namespace forge::gpu
