#pragma once
// The queries of attention_head_tiles.h, as the columns of a tile: a lane has some units of a head's query. They are
// F16, and with kTerms = 2 the sum of two F16 numbers, which is exact to about 22 bits: for models that choose experts
// by what follows, where a rounded query could change a choice.

#include "kernels/gpu/attention_row.h"
#include "kernels/gpu/matrix_tile.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names what AttentionDefaults needs.
struct AttentionHeadTilesDefaults : AttentionDefaults {
  using Tile = NativeTile;
  static constexpr int kChunkTiles = 1;  ///< tiles of 16 tokens in a chunk: 1 or 2
  static constexpr int kTerms = 1;       ///< F16 numbers whose sum is an element of a query, or a weight: 1 or 2
};

/// The nearest F16 number, and what is left of x.
FORGE_DEVICE float take_half(float& x) {
  const float half = f32_of_f16(f16_of_f32(x));
  x -= half;
  return half;
}

template <class C>
struct HeadQueries : AttentionRow<C> {
  using Row = AttentionRow<C>;
  using T = typename C::Tile;
  using Row::kGroup, Row::kHeadDim, Row::kLog2E, Row::kThreads, Row::kUnit;
  using typename Row::Job;
  static constexpr int kTerms = C::kTerms, kColumnTiles = ceil_div(kGroup, T::kN), kGroups = T::kGroups;
  static constexpr int kRun = T::kK / kGroups, kRunWords = kRun / 2;  ///< columns of k of a lane, and words of them
  // Units of a lane, padded to whole runs: also of keys.
  static constexpr int kUnits = kHeadDim / kUnit, kUnitWords = kUnit / 2;
  static constexpr int kUnitsOfRun = kRunWords > kUnitWords ? kRunWords / kUnitWords : 1;
  static constexpr int kKeyUnits = ceil_div(ceil_div(kUnits, kGroups), kUnitsOfRun) * kUnitsOfRun;
  static constexpr bool kKeysPadded = kKeyUnits * kGroups > kUnits;
  /// Queries are in registers, or in shared memory where that takes too many: [term][column][units of 8 dims].
  static constexpr int kQueryWords = kKeyUnits * kUnitWords, kQueryWordsMost = 24;
  static constexpr bool kQueryShared = kQueryWords * kColumnTiles * kTerms > kQueryWordsMost;
  static constexpr int kQueryStride = kHeadDim / 8 | 1;  ///< against bank conflicts

  struct Lds : Row::Lds {
    Shared<U32x4, kQueryShared ? kTerms * kColumnTiles * T::kN * kQueryStride : 1> query;
  };
  using Query = u32[kQueryShared ? 1 : kTerms][kQueryShared ? 1 : kColumnTiles][kQueryShared ? 1 : kQueryWords];

  /// Eight dimensions of the query of the block's head `column`, times the scale; zeros past the heads or dimensions.
  template <class Queries>
  FORGE_DEVICE static void query_unit(const Queries& queries, const Job& job, int column, int eight,
                                      U32x4 (&out)[kTerms]) {
    constexpr float kFactor = C::kSoftcap > 0 ? C::kScale : C::kScale * kLog2E;
    const bool real = column < kGroup && eight * 8 < kHeadDim;
    FORGE_UNROLL
    for (int quad = 0; quad < 2; ++quad) {
      F32x4 four = real ? queries.four(job, column, eight * 8 + quad * 4) : F32x4{};
      FORGE_UNROLL
      for (int d = 0; d < 4; ++d) four.at[d] *= kFactor;
      FORGE_UNROLL
      for (int term = 0; term < kTerms; ++term) {
        F32x4 now = four;
        FORGE_UNROLL
        for (int d = 0; d < 4 && term + 1 < kTerms; ++d) now.at[d] = take_half(four.at[d]);
        out[term].at[2 * quad] = f16_pair(now.at[0], now.at[1]);
        out[term].at[2 * quad + 1] = f16_pair(now.at[2], now.at[3]);
      }
    }
  }
  template <class Queries>
  FORGE_DEVICE static void load_query(const Queries& queries, const Job& job, Query& query, Lds& lds) {
    if constexpr (kQueryShared) {
      constexpr int kEights = kHeadDim / 8, kColumns = kColumnTiles * T::kN;
      for (int i = thread_id(); i < kColumns * kEights; i += kThreads) {
        U32x4 units[kTerms];
        query_unit(queries, job, i / kEights, i % kEights, units);
        FORGE_UNROLL
        for (int term = 0; term < kTerms; ++term)
          lds.query.set((term * kColumns + i / kEights) * kQueryStride + i % kEights, units[term]);
      }
      barrier();
    } else {
      FORGE_UNROLL
      for (int c = 0; c < kColumnTiles; ++c) {
        FORGE_UNROLL
        for (int e = 0; e < kQueryWords / 4; ++e) {
          const int j = e / (kUnit / 8), eight = (T::group(lane_id()) + j * kGroups) * (kUnit / 8) + e % (kUnit / 8);
          U32x4 units[kTerms];
          query_unit(queries, job, c * T::kN + T::b_row(lane_id(), 0), eight, units);
          FORGE_UNROLL
          for (int term = 0; term < kTerms; ++term) {
            FORGE_UNROLL
            for (int w = 0; w < 4; ++w) query[term][c][e * 4 + w] = units[term].at[w];
          }
        }
      }
    }
  }
  /// The words of the lane's run number `run` of a query.
  FORGE_DEVICE static void query_run(const Query& query, const Lds& lds, int term, int c, int run,
                                     u32 (&out)[kRunWords]) {
    if constexpr (kQueryShared) {
      constexpr int kEightsOfUnit = kUnit / 8;
      const int column = (term * kColumnTiles + c) * T::kN + T::b_row(lane_id(), 0);
      FORGE_UNROLL
      for (int w = 0; w < kRunWords; w += 2) {
        const int word = run * kRunWords + w, j = word / kUnitWords;
        const int eight = (T::group(lane_id()) + j * kGroups) * kEightsOfUnit + word % kUnitWords / 4;
        const bool real = !kKeysPadded || eight < kHeadDim / 8;
        const U32x2 two = lds.query.half_of(column * kQueryStride + (real ? eight : 0), word % 4 / 2);
        out[w] = real ? two.at[0] : 0;
        out[w + 1] = real ? two.at[1] : 0;
      }
    } else {
      FORGE_UNROLL
      for (int w = 0; w < kRunWords; ++w) out[w] = query[term][c][run * kRunWords + w];
    }
  }
};

}  // namespace forge::gpu
