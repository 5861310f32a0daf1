#pragma once
// Scores of index keys (select_keys.h) without matrix instructions: a thread multiplies the key of its position by the
// queries of some heads, in f32.

#include "kernels/gpu/key_lists.h"

namespace forge::gpu {

template <class C>
struct KeyScores : KeyLists<C> {
  static constexpr int kRows = 1;        ///< most rows that are scored together
  static constexpr int kPositions = 32;  ///< of a chunk
  using Lists = KeyLists<C>;
  using Stage = KeyStage<C, kPositions>;
  using Lists::kDim, Lists::kUnits, Lists::kThreads, Lists::kScores, Lists::write;
  static constexpr int kGroups = kThreads / kPositions;  ///< groups of threads, a thread for each position of a chunk
  static constexpr int kHeadsOfGroup = ceil_div(C::kHeads, kGroups);
  static constexpr int kTogether = kHeadsOfGroup < 8 ? kHeadsOfGroup : 8;  ///< heads that a thread multiplies at once
  static constexpr int kQueryStride = kDim / 4 + 1;                        ///< of four floats
  using Part = Elements<F16>;

  struct Lds {
    typename Stage::Keys keys;
    Shared<F32x4, C::kHeads * kQueryStride> query;
    Shared<float, C::kHeads> weights;
    Shared<float, kGroups * kPositions> sums;  ///< [kGroups][kPositions]
  };

  FORGE_DEVICE static void load_query(const ScoredRows& row, Lds& lds) {
    for (int i = thread_id(); i < C::kHeads * kDim / 4; i += kThreads)
      lds.query.set(i / (kDim / 4) * kQueryStride + i % (kDim / 4), __builtin_bit_cast(F32x4, load16(row.q + i * 4)));
    if constexpr (C::kWeighted)
      for (int i = thread_id(); i < C::kHeads; i += kThreads) lds.weights.set(i, load(row.weights + i));
  }

  /// Scores the chunk in shared memory. Ends without a barrier.
  FORGE_DEVICE static void add_chunk(const ScoredRows& row, int chunk, Lds& lds, float* scores) {
    const int key = thread_id() % kPositions, group = thread_id() / kPositions;
    const int count = row.newest + 1 - chunk * kPositions;
    float sum = 0;
    FORGE_LOOP
    for (int first = 0; first < kHeadsOfGroup; first += kTogether) {
      float dots[kTogether] = {};
      int heads[kTogether];
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        heads[i] = (first + i) * kGroups + group;
        if (heads[i] >= C::kHeads) heads[i] = C::kHeads;
      }
      for (int unit = 0; unit < kUnits; ++unit) {
        const Part part = elements_of<F16>(lds.keys.get(key * Stage::kStride + unit));
        FORGE_UNROLL
        for (int i = 0; i < kTogether; ++i) {
          const int head = heads[i] < C::kHeads ? heads[i] : C::kHeads - 1;
          FORGE_UNROLL
          for (int half = 0; half < 2; ++half) {
            const F32x4 q = lds.query.get(head * kQueryStride + unit * 2 + half);
            FORGE_UNROLL
            for (int j = 0; j < 4; ++j) dots[i] = fma_of(q.at[j], part.at[half * 4 + j], dots[i]);
          }
        }
      }
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const bool real = heads[i] < C::kHeads;
        if constexpr (C::kWeighted) {
          if (real) sum = fma_of(lds.weights.get(heads[i]), dots[i] > 0 ? dots[i] : 0.0f, sum);
        } else {
          write(scores + static_cast<u64>(real ? heads[i] : 0) * kScores, chunk, real ? count : 0, dots[i]);
        }
      }
    }
    if constexpr (C::kWeighted) {
      lds.sums.set(thread_id(), sum);
      barrier();
      float total = 0;
      FORGE_UNROLL
      for (int g = 0; g < kGroups; ++g) total += lds.sums.get(g * kPositions + key);
      write(scores, chunk, group == 0 ? count : 0, total);
    }
  }

  /// Scores chunks `first`, `first` + stride, ... of a row into scores [lists][kScores].
  FORGE_DEVICE static void run(const ScoredRows& row, int first, int stride, Lds& lds, float* scores) {
    load_query(row, lds);
    Stage::each_chunk(row, first, stride, lds.keys, [&](int chunk, int) { add_chunk(row, chunk, lds, scores); });
  }
};

}  // namespace forge::gpu
