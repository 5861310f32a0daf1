#pragma once
// The choice of the keys that take part in sparse attention (ir::SelectKeysAttrs), for ragged rows: each row t has its
// own sequence and position. It has two parts:
//
//   scores      of a row's positions, by its index queries and the paged f16 pool of index keys (one head): KeyScores
//               (key_scores.h), or KeyScoreTiles (key_score_tiles.h) with matrix instructions
//   KeyChoice   the numbers of the best blocks of positions, ascending, then -1 (key_choice.h)
//
// Steps with few rows run them as two launches: several blocks (workers) share the positions of a row, then a block
// chooses for each list. Steps with many rows have one launch, SelectKeys: a block does both for one group of rows
// after the other, so that only the rows in work need room for scores. Rows that see no more than kTopK blocks keep
// them all, and nothing is read of their keys.
//
// With weights a position has one score, the sum over heads j of weights[j] * max(0, q_j . k). Without, each head has a
// list of its own, by q_j . k. A block's score is its best position's; of equal scores the earlier block wins; NaN
// counts as the worst.

#include "kernels/gpu/key_choice.h"
#include "kernels/gpu/key_scores.h"

namespace forge::gpu {

/// The first of two launches. Grid: [rows][kWorkers].
template <class C, class Scores = KeyScores<C>>
struct ScoreKeys {
  using Args = SelectKeysArgs;
  using Lds = typename Scores::Lds;
  static constexpr int kThreads = Scores::kThreads, kBlocks = C::kTokensTotal * C::kWorkers;
  static constexpr int kChunksPerWorker = 2;  ///< least chunks of a worker before another one is used

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    const int t = block_id() / C::kWorkers, worker = block_id() % C::kWorkers;
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const int position = uniform(load(args.positions + t));
    const int wanted = ceil_div(position / Scores::kPositions + 1, kChunksPerWorker);
    const int workers = wanted < C::kWorkers ? wanted : C::kWorkers;
    if (worker >= workers) return;
    wait_for_producer();
    if (Scores::blocks_of(position) <= C::kTopK) return;
    Scores::run(Scores::rows_of(args, t, 1, position), worker, workers, lds,
                args.scores + static_cast<u64>(t) * Scores::kLists * Scores::kScores);
  }
};

/// The second launch. Grid: [rows][lists].
template <class C>
struct ChooseKeys {
  using Choice = KeyChoice<C>;
  using Args = SelectKeysArgs;
  using Lds = typename Choice::Lds;
  static constexpr int kThreads = Choice::kThreads, kBlocks = C::kTokensTotal * Choice::kLists;

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    const int t = block_id() / Choice::kLists;
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const int position = uniform(load(args.positions + t)), blocks = Choice::blocks_of(position);
    i32* out = args.out + static_cast<u64>(block_id()) * C::kTopK;
    wait_for_producer();
    if (blocks <= C::kTopK)
      Choice::write_all(blocks, out);
    else
      Choice::run_list(args.scores + static_cast<u64>(block_id()) * Choice::kScores, position, out, lds);
  }
};

/// Both at once, for steps with many rows. Grid: kRowBlocks, each of which has every kRowBlocks-th group of kRows rows.
/// Rows of a group that have the same sequence are scored together.
template <class C, class Scores = KeyScores<C>>
struct SelectKeys {
  using Choice = KeyChoice<C>;
  using Args = SelectKeysArgs;
  union Lds {
    typename Scores::Lds scores;
    typename Choice::Lds choice;
  };
  static constexpr int kThreads = Scores::kThreads, kBlocks = C::kRowBlocks, kRows = Scores::kRows;
  static_assert(kTokenTile % kRows == 0, "the rows of a group are all in one tile of 16");

  FORGE_DEVICE static int position_of(const Args& args, int t) { return uniform(load(args.positions + t)); }
  /// Chooses for row t. Ends with a barrier if it has used `lds`.
  FORGE_DEVICE static void choose(const Args& args, int t, const float* scores, typename Choice::Lds& lds) {
    const int position = position_of(args, t), blocks = Scores::blocks_of(position);
    i32* out = args.out + static_cast<u64>(t) * Scores::kLists * C::kTopK;
    for (int list = 0; list < Scores::kLists; ++list) {
      if (blocks <= C::kTopK) {
        Choice::write_all(blocks, out + list * C::kTopK);
      } else {
        Choice::run_list(scores + static_cast<u64>(list) * Scores::kScores, position, out + list * C::kTopK, lds);
        barrier();
      }
    }
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    wait_for_producer();
    constexpr u64 kRowScores = static_cast<u64>(Scores::kLists) * Scores::kScores;
    float* scores = args.scores + block_id() * kRows * kRowScores;
    for (int t0 = block_id() * kRows; t0 < C::kTokensTotal && !idle_tile(args.counts, kTokenCount, t0);
         t0 += C::kRowBlocks * kRows) {
      const int end = t0 + kRows < C::kTokensTotal ? t0 + kRows : C::kTokensTotal;
      for (int t = t0, next; t < end; t = next) {
        const int sequence = uniform(load(args.sequences + t));
        int newest = position_of(args, t);
        for (next = t + 1; next < end && uniform(load(args.sequences + next)) == sequence; ++next) {
          const int position = position_of(args, next);
          if (position > newest) newest = position;
        }
        if (Scores::blocks_of(newest) > C::kTopK) {
          Scores::run(Scores::rows_of(args, t, next - t, newest), 0, 1, lds.scores, scores);
          barrier();
        }
        for (int row = t; row < next; ++row) choose(args, row, scores + (row - t) * kRowScores, lds.choice);
      }
    }
  }
};

}  // namespace forge::gpu
