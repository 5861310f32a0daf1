#pragma once
// The scores and the online softmax (attention.h has it) of a wave of attention_tiles.h: 16 queries of one head, and a
// chunk of keys.
//
// Weights are sums of the first product and a factor of the second one. Queries lie in both products as it suits them:
//
//   NVIDIA         scores = Q * K^T, out = weights * V            queries are rows; two tiles of scores are a fragment
//                                                                 of A (join_sums)
//   AMD            scores = K * Q^T, out^T = V^T * weights        queries are columns; a tile of scores is a fragment
//   of
//                                                                 B (stack_sums), and a lane has one query only

#include "kernels/gpu/matrix_tile.h"
#include "kernels/gpu/team_sum.h"

namespace forge::gpu {

/// C: the configuration (AttentionTilesDefaults). RowsOf: the kernel of single rows, for its constants.
template <class C, class RowsOf>
struct ScoreTiles {
  using Rows = RowsOf;
  using T = typename C::Tile;
  static constexpr int kRowsOfWave = 16, kSlab = 32;
  static constexpr int kDimSlabs = C::Pool::kHeadDim / kSlab, kKeySlabs = C::kChunk / kSlab;
  static constexpr int kParts = C::kParts, kPartSlabs = ceil_div(kDimSlabs, kParts), kPartDim = kPartSlabs * kSlab;
  /// Queries are columns of the products (see above). A lane has elements of kQueriesOfLane queries.
  static constexpr bool kAcross = !T::kPairsInRow;
  static constexpr int kQueriesOfLane = kAcross ? 1 : T::kRowsOfLane;
  static constexpr int kKeyTiles = C::kChunk / T::kN, kSlabTiles = kSlab / T::kN, kOutTiles = kPartSlabs * kSlabTiles;
  /// Weights, and their sum, are scaled by 2^kRaise, which cancels in the division. Without it small weights would be
  /// subnormal in F16: these have fewer bits, and gfx90a's matrix instructions treat them as zeros.
  static constexpr float kRaise = 10;
  /// Maxima are raised only where a weight would be more than 2^kMost, which F16 still has, not with each larger score.
  static constexpr int kMost = 15;

  /// A lane's part of the online softmax: one maximum and sum per query that it has elements of, and its elements of
  /// the output, 16 queries by the wave's columns. `sum` is of the lane's own keys; sum_of_query() adds up those of a
  /// query.
  struct State {
    float maximum[kQueriesOfLane], sum[kQueriesOfLane];
    float out[kOutTiles][T::Fragments::kC];
  };
  using Scores = float[kKeyTiles][T::Fragments::kC];
  using Words = u32[kKeyTiles][T::Fragments::kC / 2];  ///< a chunk's weights, packed
  /// The weights of a chunk as fragments of the second product, one for each of its instructions' columns of k.
  using Weights = u32[kKeySlabs * kHalves][(kAcross ? T::Fragments::kB : T::Fragments::kA) / 2];

  /// Where element i of a tile of sums belongs: the lane's query (of kQueriesOfLane), the query (of kRowsOfWave), and
  /// the other index within the tile, a key or a dimension.
  FORGE_DEVICE static constexpr int own_query(int i) { return kAcross ? 0 : T::row_of(i); }
  FORGE_DEVICE static int query_at(int i) { return kAcross ? T::c_column(lane_id(), i) : T::c_row(lane_id(), i); }
  FORGE_DEVICE static int other_at(int i) { return kAcross ? T::c_row(lane_id(), i) : T::c_column(lane_id(), i); }
  /// The row that a key of a chunk has in shared memory, and the key of element i of tile n of the scores.
  FORGE_DEVICE static constexpr int row_of_key(int key) {
    if constexpr (kAcross)
      return key / kSlab * kSlab + T::row_of_k(key % kSlab);
    else
      return key;
  }
  FORGE_DEVICE static int key_at(int n, int i) {
    if constexpr (kAcross)
      return n / kHalves * kSlab + T::k_of_sum(lane_id(), n % kHalves, i);
    else
      return n * T::kN + other_at(i);
  }
  /// Over the lanes that have elements of the same query.
  FORGE_DEVICE static float max_of_query(float value) {
    if constexpr (kAcross)
      return max_teams<T::kN>(value);
    else
      return max_lanes<T::kRowLanes>(value);
  }
  FORGE_DEVICE static float sum_of_query(float value) {
    if constexpr (kAcross)
      return sum_teams<T::kN>(value);
    else
      return sum_lanes<T::kRowLanes>(value);
  }

  /// The score that a lane's query has been summed with so far: its maximum, lowered so that weights are raised.
  FORGE_DEVICE static float base_of(const State& state, int own) {
    return state.maximum[own] > Rows::kLowest ? state.maximum[own] : 0.0f;
  }
  /// Scores less base_of(), before a product adds to them. Of several parts one has it; a cap does it later.
  FORGE_DEVICE static void begin(const State& state, Scores& scores) {
    const bool has_base = C::kSoftcap == 0 && (kParts == 1 || uniform(wave_id() % kParts) == 0);
    FORGE_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) {
      FORGE_UNROLL
      for (int i = 0; i < T::Fragments::kC; ++i) scores[n][i] = has_base ? -base_of(state, own_query(i)) : 0.0f;
    }
  }
  FORGE_DEVICE static void cap(const State& state, Scores& scores) {
    FORGE_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) {
      FORGE_UNROLL
      for (int i = 0; i < T::Fragments::kC; ++i)
        scores[n][i] = fma_of(softcap(scores[n][i], C::kSoftcap), Rows::kLog2E, -base_of(state, own_query(i)));
    }
  }
  /// Masks scores: a row sees a key if the key is not newer than the row and lies in its window and its chunk. Masked
  /// scores are 2 * kLowest, so that their weight is 0 even while the maximum is kLowest. position: of the wave's first
  /// row; slope: its head's ALiBi, if any. Most chunks of a long prompt are seen as a whole.
  FORGE_DEVICE static void mask(Scores& scores, int chunk, int position, [[maybe_unused]] float slope) {
    const int key0 = chunk * C::kChunk;
    const bool whole = C::kChunkedTo == 0 && C::kAlibi == 0 && key0 + C::kChunk - 1 <= position &&
                       (C::kWindow == 0 || position + kRowsOfWave - 1 - key0 < C::kWindow);
    if (whole) return;
    const int own_key = key0 + key_at(0, 0);
    FORGE_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) {
      FORGE_UNROLL
      for (int i = 0; i < T::Fragments::kC; ++i) {
        const int row = position + query_at(i), room = row - own_key,
                  apart = key_at(n, i) - key_at(0, 0);  // a constant
        if constexpr (C::kAlibi > 0) scores[n][i] -= slope * static_cast<float>(room - apart);
        bool seen = apart <= room && (C::kWindow == 0 || apart > room - C::kWindow);
        if constexpr (C::kChunkedTo > 0) seen = seen && apart >= room - row % C::kChunkedTo;
        scores[n][i] = seen ? scores[n][i] : 2 * Rows::kLowest;
      }
    }
  }
  /// True if a query of the wave has no maximum yet.
  FORGE_DEVICE static bool has_new(const State& state) {
    bool any = false;
    FORGE_UNROLL
    for (int r = 0; r < kQueriesOfLane; ++r) any = any || state.maximum[r] <= Rows::kLowest;
    return any_lane(any);
  }
  /// Raises maxima to those of the scores, which are relative to base_of() and become relative to the new maxima, and
  /// scales what has been summed to these.
  FORGE_DEVICE static void raise(Scores& scores, State& state) {
    float maximum[kQueriesOfLane], keep[kQueriesOfLane], rise[kQueriesOfLane];
    FORGE_UNROLL
    for (int r = 0; r < kQueriesOfLane; ++r) maximum[r] = 2 * Rows::kLowest;
    FORGE_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) {
      FORGE_UNROLL
      for (int i = 0; i < T::Fragments::kC; ++i) maximum[own_query(i)] = larger_of(maximum[own_query(i)], scores[n][i]);
    }
    FORGE_UNROLL
    for (int r = 0; r < kQueriesOfLane; ++r) {
      maximum[r] = larger_of(base_of(state, r) + max_of_query(maximum[r]) - kRaise, state.maximum[r]);
      keep[r] = exp2_of(state.maximum[r] - maximum[r]);
      rise[r] = maximum[r] - base_of(state, r);
      state.maximum[r] = maximum[r];
      state.sum[r] *= keep[r];
    }
    FORGE_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) {
      FORGE_UNROLL
      for (int i = 0; i < T::Fragments::kC; ++i) scores[n][i] -= rise[own_query(i)];
    }
    FORGE_UNROLL
    for (int d = 0; d < kOutTiles; ++d) {
      FORGE_UNROLL
      for (int i = 0; i < T::Fragments::kC; ++i) state.out[d][i] *= keep[own_query(i)];
    }
  }
  /// Makes the scores weights, and packs them. False if one of the wave's is more than 2^kMost: then a maximum has
  /// risen since raise().
  FORGE_DEVICE static bool weigh(Scores& scores, Words& words) {
    constexpr u32 kMostBits = (15 + kMost) << 10, kBothMost = kMostBits << 16 | kMostBits;
    u32 most = 0;
    FORGE_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) {
      FORGE_UNROLL
      for (int w = 0; w < T::Fragments::kC / 2; ++w) {
        scores[n][2 * w] = exp2_of(scores[n][2 * w]);
        scores[n][2 * w + 1] = exp2_of(scores[n][2 * w + 1]);
        words[n][w] = f16_pair_quickly(scores[n][2 * w], scores[n][2 * w + 1]);
        most = n + w == 0 ? words[n][w] : larger_halves(most, words[n][w]);
      }
    }
    return !any_lane(larger_halves(most, kBothMost) != kBothMost);
  }
  /// Adds the weights of a chunk to the sums, and makes fragments of them.
  FORGE_DEVICE static void take(const Scores& scores, const Words& words, State& state, Weights& weights) {
    FORGE_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) {
      FORGE_UNROLL
      for (int i = 0; i < T::Fragments::kC; ++i) {
        if constexpr (!kAcross)
          state.sum[own_query(i)] += scores[n][i];
        else if (i % 2 == 0)
          state.sum[0] = sum_of_halves(words[n][i / 2], state.sum[0]);
      }
    }
    FORGE_UNROLL
    for (int k = 0; k < kKeySlabs * kHalves; ++k) {
      if constexpr (kAcross)
        stack_sums<T>(words[k], weights[k]);
      else
        join_sums<T>(words[2 * k], words[2 * k + 1], weights[k]);
    }
  }
};

}  // namespace forge::gpu
