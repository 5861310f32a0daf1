#pragma once
// What the kernels that choose the keys of sparse attention (select_keys.h) have in common: their configuration and
// arguments, the stage of index keys in shared memory, and how scores lie in scratch.

#include "kernels/gpu/formats.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names Pool (KvPool with one head), kHeads, kTopK and kTableBlocks.
struct SelectKeysDefaults {
  static constexpr int kTokensTotal = 1;
  static constexpr int kBlock = 1;         ///< positions that are chosen together
  static constexpr int kLocal = 0;         ///< newest blocks that are always chosen
  static constexpr bool kWeighted = true;  ///< one list by the heads' weighted sum, else one for each head
  static constexpr int kQueryFloats = 0;   ///< floats from row to row of q; 0: kHeads * head_dim
  static constexpr int kWeightFloats = 0;  ///< floats from row to row of weights; 0: kHeads
  static constexpr int kWaves = 8;         ///< waves of a block
  static constexpr int kWorkers = 1;       ///< most blocks that share the positions of a row (ScoreKeys)
  static constexpr int kRowBlocks = 1;     ///< blocks of the grid (SelectKeys)
};

/// The members are those of all kernels; ScoreKeys does not write `out`, ChooseKeys reads only positions, counts and
/// scores.
struct SelectKeysArgs {
  const float* q;        ///< [rows][kHeads][head_dim]
  const float* weights;  ///< [rows][kHeads]; read if kWeighted
  const u16* keys;       ///< the layer's pool
  const i32* positions;  ///< [rows]; -1: padding, whose lists are empty
  const i32* sequences;  ///< [rows]
  const i32* tables;     ///< [sequences][kTableBlocks]
  const i32* counts;
  float* scores;  ///< [rows, or kRowBlocks * kRows for SelectKeys][lists][kScores]
  i32* out;       ///< [rows][lists][kTopK]
};

/// `count` rows of a step that are scored together: neighbours that have the same sequence. Pointers are those of the
/// first row.
struct ScoredRows {
  const float *q, *weights;
  const u16* keys;
  const i32* table;      ///< of the sequence
  const i32* positions;  ///< [count]
  int count, newest;     ///< newest: the largest position
};

template <class C>
struct KeyLists {
  using Pool = typename C::Pool;
  static constexpr int kThreads = C::kWaves * kWave;
  static constexpr int kLists = C::kWeighted ? 1 : C::kHeads;
  static constexpr int kDim = Pool::kHeadDim, kUnits = kDim / 8;
  static constexpr int kQueryFloats = C::kQueryFloats > 0 ? C::kQueryFloats : C::kHeads* kDim;
  static constexpr int kWeightFloats = C::kWeightFloats > 0 ? C::kWeightFloats : C::kHeads;
  static constexpr int kGroup = 32;  ///< positions whose scores are written together
  /// Positions of a score in scratch: if blocks are whole groups, the best score of each group is kept.
  static constexpr int kUnit = C::kBlock % kGroup == 0 ? kGroup : 1;
  static constexpr int kScores = C::kTableBlocks * Pool::kBlockTokens / kUnit;  ///< of a list
  static constexpr float kMinusInfinity = __builtin_bit_cast(float, 0xff800000u), kLargest = 3.402823466e38f;
  static_assert(Pool::kKvHeads == 1 && kDim % 8 == 0 && Pool::kBlockTokens % kGroup == 0,
                "index keys are those of one head, whole units wide, in blocks of whole groups");
  static_assert(C::kLocal <= C::kTopK, "local blocks are among the chosen ones");

  /// Blocks that a row at `position` (-1: padding) sees.
  FORGE_DEVICE static int blocks_of(int position) { return position < 0 ? 0 : position / C::kBlock + 1; }
  /// Rows t .. t + count - 1.
  FORGE_DEVICE static ScoredRows rows_of(const SelectKeysArgs& args, int t, int count, int newest) {
    return {args.q + static_cast<u64>(t) * kQueryFloats,
            args.weights + static_cast<u64>(t) * kWeightFloats,
            args.keys,
            args.tables + static_cast<u64>(load(args.sequences + t)) * C::kTableBlocks,
            args.positions + t,
            count,
            newest};
  }
  /// Writes the scores of a group of a list. 32 neighbouring lanes have those of its positions, of which the row sees
  /// the first `count`; none if it is 0 or less.
  FORGE_DEVICE static void write(float* scores, int group, int count, float score) {
    const int lane = thread_id() % kGroup;
    const bool counts = lane < count && score > kMinusInfinity;  // false for NaN
    score = counts ? min_of(score, kLargest) : kMinusInfinity;
    if constexpr (kUnit == kGroup) {
      score = max_lanes<kGroup>(score);
      if (lane == 0 && count > 0) scores[group] = score;
    } else {
      if (lane < count) scores[group * kGroup + lane] = score;
    }
  }
};

/// The way of index keys to shared memory, a chunk of Positions at a time: places in the pool are found one chunk ahead
/// of the loads, which wait for them, and keys are loaded one chunk ahead of their use. Stages: chunks in shared
/// memory; 2 with asynchronous copies, or 1: the next one is in registers.
template <class C, int Positions, int Stages = 1>
struct KeyStage : KeyLists<C> {
  using Lists = KeyLists<C>;
  using Lists::kThreads, Lists::kUnits;
  using Pool = typename C::Pool;
  static constexpr bool kCopies = Stages > 1;
  static constexpr int kLoads = ceil_div(Positions * kUnits, kThreads);  ///< units of a thread
  static constexpr int kStride = kUnits | 1;  ///< units from row to row in shared memory; odd, against bank conflicts
  static_assert(Stages == 1 || (Stages == 2 && kAsyncCopies), "two stages need asynchronous copies");
  using Keys = Shared<U32x4, Stages * Positions * kStride>;
  using Staged = U32x4[kCopies ? 1 : kLoads];

  /// Calls each(chunk, unit) for chunks `first`, `first` + stride, ... up to the newest position; the chunk is then in
  /// shared memory from `unit` on. There is a barrier before each call, and one before its keys are overwritten.
  template <class Each>
  FORGE_DEVICE static void each_chunk(const ScoredRows& rows, int first, int stride, Keys& keys, Each&& each) {
    const int end = rows.newest / Positions + 1;
    int slots[kLoads] = {}, unit = 0;
    Staged staged;
    find(rows, first, slots);
    load_keys(rows, first, slots, unit, keys, staged);
    find(rows, first + stride, slots);
    FORGE_LOOP
    for (int chunk = first; chunk < end; chunk += stride) {
      const int own = unit;
      wait_copies_but<0>();
      if constexpr (!kCopies) {
        barrier();
        each_unit([&](int i, int at, int place) { keys.set(place, staged[i]); });
      }
      barrier();
      unit = (Stages - 1) * Positions * kStride - own;
      if (chunk + stride < end) load_keys(rows, chunk + stride, slots, unit, keys, staged);
      find(rows, chunk + 2 * stride, slots);
      each(chunk, own);
    }
  }

 private:
  /// Calls each(i, at, place) for the thread's units of a chunk: number i is unit `at`, which lies at `place`.
  template <class Each>
  FORGE_DEVICE static void each_unit(Each&& each) {
    FORGE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kThreads + thread_id();
      if (Positions * kUnits % kThreads == 0 || at < Positions * kUnits)
        each(i, at, at / kUnits * kStride + at % kUnits);
    }
  }
  /// Finds the places of the positions that rows see.
  FORGE_DEVICE static void find(const ScoredRows& rows, int chunk, int (&slots)[kLoads]) {
    each_unit([&](int i, int at, int) {
      const int position = chunk * Positions + at / kUnits;
      if (position <= rows.newest)
        slots[i] =
            load(rows.table + position / Pool::kBlockTokens) * Pool::kBlockTokens + position % Pool::kBlockTokens;
    });
  }
  /// Keys that no row sees are zeros.
  FORGE_DEVICE static void load_keys(const ScoredRows& rows, int chunk, const int (&slots)[kLoads], int unit,
                                     Keys& keys, Staged& staged) {
    each_unit([&](int i, int at, int place) {
      const bool real = chunk * Positions + at / kUnits <= rows.newest;
      const u16* from = rows.keys + Pool::index(slots[i], 0, at % kUnits * 8);
      if constexpr (kCopies) {
        keys.copy16(unit + place, from, real);
      } else {
        staged[i] = U32x4{};
        if (real) staged[i] = load16(from);
      }
    });
    commit_copies();
  }
};

}  // namespace forge::gpu
