#pragma once
// Attention of encoders (BERT, arXiv 1810.04805): a token sees tokens on both sides of it, and there is no cache.

#include "kernels/gpu/alibi.h"
#include "kernels/gpu/state_runs.h"

namespace forge::gpu {

/// out[t] = softmax(kScale * q[t] . k[j] - slope * |t - j|) v[j] over the tokens j of t's sequence, or those at most
/// kReach away. Computed in one pass over the keys with a running maximum and sum (arXiv 2205.14135).
///
/// A block has one head and kQueries neighbouring tokens of the step, which may belong to several sequences. It stages
/// the keys and values that any of them sees, kKeys tokens at a time. A team of kLanes lanes owns a token and has every
/// kLanes-th four columns of its head, so the lanes of a team read neighbouring words, and teams read the same ones
/// (kLanes 2, kHeadDim 16):
///
///   column  0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 15
///   lane    0         1         0           1
///
/// C has kHeads, kKvHeads, kHeadDim, kReach (-1: no limit), kScale (with the factor log2 e), kAlibi (0: no slopes),
/// kLanes, kKeys, kWaves, kTokensTotal (that memory has), and the row strides kQFloats, kKFloats, kVFloats and
/// kOutFloats.
template <class C>
struct SelfAttention {
  static constexpr int kThreads = C::kWaves * kWave, kQueries = kThreads / C::kLanes;
  static constexpr int kQueryBlocks = ceil_div(C::kTokensTotal, kQueries), kBlocks = C::kHeads * kQueryBlocks;
  static constexpr int kQuads = ceil_div(C::kHeadDim, 4 * C::kLanes);  ///< of a lane
  static constexpr int kRowQuads = kQuads * C::kLanes;                 ///< of a staged row, zeros behind kHeadDim
  static constexpr int kTogether = 8;                                  ///< keys between two updates of the maximum
  static constexpr float kLowest = -1e30f;
  static_assert(C::kKeys % kTogether == 0, "staged keys are whole groups");
  struct Lds {
    Shared<U32x4, C::kKeys * kRowQuads> keys, values;
    Shared<i32, C::kKeys> sequence;  ///< of each staged token; -1 behind the last one
  };
  struct Args {
    const float *q, *k, *v;
    const i32* counts;    ///< i32[4], indexed by Count
    const i32* sequence;  ///< [tokens], ascending
    float* out;
  };

  /// Stages tokens j0 .. j0 + kKeys - 1, of which those from `end` on do not exist. All lanes of the block.
  FORGE_DEVICE static void stage(const Args& args, int kv_head, int j0, int end, Lds& lds) {
    constexpr int kColumns = 4 * kRowQuads;
    FORGE_LOOP
    for (int i = thread_id(); i < C::kKeys * kColumns; i += kThreads) {
      const int j = j0 + i / kColumns, column = i % kColumns;
      const bool real = j < end && column < C::kHeadDim;
      const int row = real ? j : j0, at = kv_head * C::kHeadDim + (real ? column : 0);
      const float k = load(args.k + static_cast<u64>(row) * C::kKFloats + at);
      const float v = load(args.v + static_cast<u64>(row) * C::kVFloats + at);
      lds.keys.set_word(i, __builtin_bit_cast(u32, real ? k : 0.0f));
      lds.values.set_word(i, __builtin_bit_cast(u32, real ? v : 0.0f));
    }
    for (int i = thread_id(); i < C::kKeys; i += kThreads)
      lds.sequence.set(i, j0 + i < end ? load(args.sequence + j0 + i) : -1);
  }

  FORGE_DEVICE static F32x4 four(const Shared<U32x4, C::kKeys * kRowQuads>& rows, int key, int quad) {
    return __builtin_bit_cast(F32x4, rows.get(key * kRowQuads + quad * C::kLanes + thread_id() % C::kLanes));
  }

  /// A token's query, and what it has of its result so far: the largest score, and relative to it the sum of the
  /// weights and the weighted sum of values.
  struct Query {
    int token, sequence;
    float q[4 * kQuads], sum[4 * kQuads] = {};
    float top = kLowest, weights = 0, slope = 0;

    FORGE_DEVICE int distance_to(int j) const { return j < token ? token - j : j - token; }
    FORGE_DEVICE bool sees(int j, int of) const {
      return of == sequence && (C::kReach < 0 || distance_to(j) <= C::kReach);
    }
    /// Adds the keys `first` .. first + kTogether - 1 of those staged from token j0 on. All lanes of the wave.
    FORGE_DEVICE void add(const Lds& lds, int j0, int first) {
      float scores[kTogether];
      bool seen[kTogether];
      float highest = top;
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        float dot = 0;
        FORGE_UNROLL
        for (int quad = 0; quad < kQuads; ++quad) {
          const F32x4 k = four(lds.keys, first + i, quad);
          FORGE_UNROLL
          for (int c = 0; c < 4; ++c) dot = fma_of(q[4 * quad + c], k.at[c], dot);
        }
        scores[i] = sum_lanes<C::kLanes>(dot) * C::kScale;
        if constexpr (C::kAlibi > 0) scores[i] -= slope * static_cast<float>(distance_to(j0 + first + i));
        seen[i] = sees(j0 + first + i, lds.sequence.get(first + i));
        if (seen[i]) highest = max_of(highest, scores[i]);
      }
      const float kept = exp2_of(top - highest);
      weights *= kept;
      FORGE_UNROLL
      for (int c = 0; c < 4 * kQuads; ++c) sum[c] *= kept;
      top = highest;
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const float weight = seen[i] ? exp2_of(scores[i] - highest) : 0.0f;
        weights += weight;
        FORGE_UNROLL
        for (int quad = 0; quad < kQuads; ++quad) {
          const F32x4 v = four(lds.values, first + i, quad);
          FORGE_UNROLL
          for (int c = 0; c < 4; ++c) sum[4 * quad + c] = fma_of(weight, v.at[c], sum[4 * quad + c]);
        }
      }
    }
  };

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int head = block_id() / kQueryBlocks, kv_head = head / (C::kHeads / C::kKvHeads);
    const int first = block_id() % kQueryBlocks * kQueries;
    release_consumers();
    const int tokens = uniform(load(args.counts + kTokenCount));
    if (first >= tokens) return;
    const int last = (first + kQueries < tokens ? first + kQueries : tokens) - 1;
    auto [begin, end] = run_of<C::kTokensTotal>(args.counts, args.sequence, uniform(load(args.sequence + first)),
                                                uniform(load(args.sequence + last)));
    if constexpr (C::kReach >= 0) {
      begin = begin < first - C::kReach ? first - C::kReach : begin;
      end = end > last + C::kReach + 1 ? last + C::kReach + 1 : end;
    }
    const int own = first + thread_id() / C::kLanes, part = thread_id() % C::kLanes;
    const bool real = own <= last;
    Query query{.token = real ? own : last, .sequence = 0, .q = {}};
    query.sequence = load(args.sequence + query.token);
    if constexpr (C::kAlibi > 0) query.slope = alibi_slope<C>(head);
    wait_for_producer();
    const float* q = args.q + static_cast<u64>(query.token) * C::kQFloats + head * C::kHeadDim;
    FORGE_UNROLL
    for (int c = 0; c < 4 * kQuads; ++c) {
      const int column = (c / 4 * C::kLanes + part) * 4 + c % 4;
      query.q[c] = column < C::kHeadDim ? load(q + column) : 0.0f;
    }
    FORGE_LOOP
    for (int j0 = begin; j0 < end; j0 += C::kKeys) {
      if (j0 != begin) barrier();
      stage(args, kv_head, j0, end, lds);
      barrier();
      FORGE_LOOP
      for (int at = 0; at < C::kKeys; at += kTogether) query.add(lds, j0, at);
    }
    float* out = args.out + static_cast<u64>(query.token) * C::kOutFloats + head * C::kHeadDim;
    FORGE_UNROLL
    for (int c = 0; c < 4 * kQuads; ++c) {
      const int column = (c / 4 * C::kLanes + part) * 4 + c % 4;
      if (column < C::kHeadDim) store(out + column, query.sum[c] / query.weights, real);
    }
  }
};

}  // namespace forge::gpu
