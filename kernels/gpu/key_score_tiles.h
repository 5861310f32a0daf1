#pragma once
// Scores of index keys (select_keys.h) by matrix instructions: the rows of a tile are index heads, its columns
// positions. A block scores kRowsTogether rows of the step, which share the chunk of 64 keys in shared memory:
//
//   rows of the step   heads     tiles       waves (kWavesDown 4, kWavesAcross 2)
//   0                  0 .. 15   0           0: positions 0 .. 31    4: positions 32 .. 63
//                      16 .. 31  1           1                       5
//   1                  0 .. 15   2           2                       6
//                      16 .. 31  3           3                       7
//
// A wave holds the queries of its tiles in registers. The keys are f16 already; a query is the sum of two f16 numbers,
// its rounding and the rest, after a power of two has moved the largest element of its head to 2^14 .. 2^15. So
// products have 22 bits of a query, and f16 numbers that some instructions take for zeros (below 2^-14) are 2^-28 of
// the largest element. The same instructions take keys below 2^-14 for zeros. Infinite keys count as NaN.
//
// Weighted scores: a lane applies max(0, .), weight and power of two to its sums and adds those of a column; then
// lanes, and through shared memory tiles, are added in a fixed order. A row's scores depend neither on its neighbours
// nor on how the kernel shares its work.

#include "kernels/gpu/matrix_tile.h"
#include "kernels/gpu/select_keys.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names what SelectKeysDefaults needs.
struct SelectKeyTilesDefaults : SelectKeysDefaults {
  using Tile = NativeTile;
  static constexpr int kRowsTogether = 1;  ///< rows of a group (SelectKeys)
  static constexpr int kStages = 1;        ///< chunks in shared memory
};

template <class C>
struct KeyScoreTiles : KeyLists<C> {
  using T = typename C::Tile;
  using Lists = KeyLists<C>;
  using Lists::kDim, Lists::kThreads, Lists::kLists, Lists::kScores, Lists::kGroup, Lists::write;
  static constexpr int kRows = C::kRowsTogether, kPositions = 64;
  using Stage = KeyStage<C, kPositions, C::kStages>;
  static constexpr int kSlabs = kDim / 32;  ///< of 32 columns
  static constexpr int kHeadTiles = ceil_div(C::kHeads, T::kM), kTiles = kRows * kHeadTiles;
  /// Waves that have different tiles, and waves that have different positions.
  FORGE_DEVICE static constexpr int waves_down() {
    int waves = 1;
    while (waves < kTiles && waves < C::kWaves) waves *= 2;
    return waves;
  }
  static constexpr int kWavesDown = waves_down(), kWavesAcross = C::kWaves / kWavesDown;
  static constexpr int kTilesOfWave = ceil_div(kTiles, kWavesDown);
  static constexpr int kColumnsOfWave = kPositions / kWavesAcross;
  static constexpr int kSums = T::Fragments::kC, kParts = 2;
  static constexpr int kColumnsOfLane =
      T::kPairsInRow ? 2 : 1;  ///< of a tile: element i is in number i % kColumnsOfLane
  /// Sums of a row in shared memory: of its tiles, or of its heads.
  static constexpr int kRowSums = C::kWeighted ? kHeadTiles : C::kHeads;
  static constexpr int kSumStride = kPositions + 4;  ///< floats; padded against bank conflicts
  static constexpr int kQueries = kRows * C::kHeads;
  /// Lanes that find the largest element of a head's query.
  FORGE_DEVICE static constexpr int query_lanes() {
    int lanes = 16;
    while (lanes > 1 && lanes * kQueries > kThreads) lanes /= 2;
    return lanes;
  }
  static constexpr int kQueryLanes = query_lanes();
  static_assert(T::kM == 16 && T::kLanes == kWave && T::kF16,
                "the tile must be f16, 16 rows high and of this wave size");
  static_assert(kDim % 32 == 0 && C::kWaves % kWavesDown == 0 && kColumnsOfWave % T::kN == 0,
                "keys are whole slabs of 32 columns, and each wave has whole tiles of positions");

  struct Lds {
    typename Stage::Keys keys;
    Shared<float, kRows * kRowSums * kSumStride> sums;  ///< [kRows][kRowSums][kSumStride]
    Shared<float, kQueries> scales;                     ///< [kRows][kHeads], powers of two
    Shared<i32, kRows> positions;                       ///< -1: there is no such row
  };
  using Query = U32x4[kParts][kTilesOfWave][kSlabs][T::kAUnits];
  using Factors = float[kTilesOfWave][T::kRowsOfLane];

  /// The power of two that moves `largest` to 2^14 .. 2^15, and its inverse.
  FORGE_DEVICE static float scale_of(float largest) {
    const u32 exponent = __builtin_bit_cast(u32, largest) >> 23;
    return __builtin_bit_cast(float, (268u - (exponent > 15u ? exponent : 15u)) << 23);
  }
  FORGE_DEVICE static float inverse_of(float scale) {
    return __builtin_bit_cast(float, (254u << 23) - __builtin_bit_cast(u32, scale));
  }

  FORGE_DEVICE static int tile_of(int m) { return wave_id() % kWavesDown + m * kWavesDown; }
  FORGE_DEVICE static bool has_tile(int m) { return kTiles % kWavesDown == 0 || tile_of(m) < kTiles; }
  /// The number of a head among kQueries, or -1 if there is no such head or row.
  FORGE_DEVICE static int query_of(const ScoredRows& rows, int tile, int row) {
    const int r = tile / kHeadTiles, head = tile % kHeadTiles * T::kM + row;
    return head < C::kHeads && r < rows.count ? r * C::kHeads + head : -1;
  }
  FORGE_DEVICE static const float* query_at(const ScoredRows& rows, int query) {
    return rows.q + query / C::kHeads * Lists::kQueryFloats + query % C::kHeads * kDim;
  }

  /// Writes the heads' scales and the rows' positions.
  FORGE_DEVICE static void set_scales(const ScoredRows& rows, Lds& lds) {
    const int own = thread_id(), lane = own % kQueryLanes;
    for (int first = 0; first < kQueries; first += kThreads / kQueryLanes) {
      const int query = first + own / kQueryLanes;
      float largest = 0;
      if (query < rows.count * C::kHeads) {
        FORGE_UNROLL
        for (int d = 0; d < kDim; d += 4 * kQueryLanes) {
          if (kDim % (4 * kQueryLanes) != 0 && d + lane * 4 >= kDim) continue;
          const auto four = __builtin_bit_cast(F32x4, load16(query_at(rows, query) + d + lane * 4));
          FORGE_UNROLL
          for (int i = 0; i < 4; ++i) largest = max_of(largest, abs_of(four.at[i]));
        }
      }
      largest = max_lanes<kQueryLanes>(largest);
      if (lane == 0 && query < kQueries) lds.scales.set(query, scale_of(largest));
    }
    if (thread_id() < kRows)
      lds.positions.set(thread_id(), thread_id() < rows.count ? load(rows.positions + thread_id()) : -1);
  }
  /// The f16 number of `value`, or with `part` 1 that of the rest, which is 0 for NaN and infinities.
  FORGE_DEVICE static u32 pair_of(int part, float low, float high) {
    const u32 pair = f16_pair(low, high);
    if (part == 0) return pair;
    const float a = low - f32_of_f16(static_cast<u16>(pair)), b = high - f32_of_f16(static_cast<u16>(pair >> 16));
    return f16_pair(a == a ? a : 0.0f, b == b ? b : 0.0f);
  }
  /// Loads the queries of the wave's tiles. Heads and rows that do not exist are zeros.
  FORGE_DEVICE static void load_query(const ScoredRows& rows, const Lds& lds, Query& out) {
    FORGE_UNROLL
    for (int m = 0; m < kTilesOfWave; ++m) {
      const int tile = tile_of(m);
      FORGE_UNROLL
      for (int slab = 0; slab < kSlabs; ++slab) {
        FORGE_UNROLL
        for (int part = 0; part < kParts; ++part)
          make_a<T>(
              [&](int row, int unit, int word) {
                const int query = query_of(rows, tile, row);
                if (query < 0) return 0u;
                const U32x2 two = load8(query_at(rows, query) + slab * 32 + unit * 8 + word * 2);
                const float scale = lds.scales.get(query);
                return pair_of(part, __builtin_bit_cast(float, two.at[0]) * scale,
                               __builtin_bit_cast(float, two.at[1]) * scale);
              },
              out[part][m][slab]);
      }
    }
  }
  /// What the sums of the lane's rows are multiplied by: the weight, and the inverse of the query's scale.
  FORGE_DEVICE static void load_factors(const ScoredRows& rows, const Lds& lds, Factors& out) {
    FORGE_UNROLL
    for (int m = 0; m < kTilesOfWave; ++m) {
      const int tile = tile_of(m);
      FORGE_UNROLL
      for (int i = 0; i < T::kRowsOfLane; ++i) {
        const int query = query_of(rows, tile, T::c_row(lane_id(), i * kColumnsOfLane));
        out[m][i] = query < 0 ? 0.0f : inverse_of(lds.scales.get(query));
        if (C::kWeighted && query >= 0)
          out[m][i] *= load(rows.weights + query / C::kHeads * Lists::kWeightFloats + query % C::kHeads);
      }
    }
  }

  /// Adds up what lanes have of the same column.
  template <int Step = T::kRowLanes>
  FORGE_DEVICE static float sum_column(float value) {
    if constexpr (Step < kWave)
      return sum_column<2 * Step>(value + shuffle_xor<Step>(value));
    else
      return value;
  }
  /// Writes the scores of a tile of heads and a tile of positions to shared memory.
  FORGE_DEVICE static void store_sums(int m, int position0, const float (&sums)[kParts][kSums], const Factors& factors,
                                      Lds& lds) {
    const int tile = tile_of(m), lane = lane_id();
    if constexpr (C::kWeighted) {
      FORGE_UNROLL
      for (int column = 0; column < kColumnsOfLane; ++column) {
        float sum = 0;
        FORGE_UNROLL
        for (int i = column; i < kSums; i += kColumnsOfLane) {
          const float dot = sums[0][i] + sums[1][i];
          sum = fma_of(factors[m][T::row_of(i)], dot > 0 ? dot : 0.0f, sum);
        }
        sum = sum_column(sum);
        if (lane < T::kRowLanes) lds.sums.set(tile * kSumStride + position0 + T::c_column(lane, column), sum);
      }
    } else {
      FORGE_UNROLL
      for (int i = 0; i < kSums; ++i) {
        const int head = tile % kHeadTiles * T::kM + T::c_row(lane, i), at = tile / kHeadTiles * C::kHeads + head;
        if (head < C::kHeads)
          lds.sums.set(at * kSumStride + position0 + T::c_column(lane, i),
                       (sums[0][i] + sums[1][i]) * factors[m][T::row_of(i)]);
      }
    }
  }
  /// Multiplies the wave's queries by its positions of the chunk in shared memory, which begins at `unit`.
  FORGE_DEVICE static void multiply(const Query& query, const Factors& factors, int unit, Lds& lds) {
    const int lane = lane_id(), across = wave_id() / kWavesDown;
    FORGE_LOOP
    for (int first = 0; first < kColumnsOfWave; first += T::kN) {
      const int position0 = across * kColumnsOfWave + first;
      float sums[kTilesOfWave][kParts][kSums] = {};
      FORGE_UNROLL
      for (int slab = 0; slab < kSlabs; ++slab) {
        U32x4 b[T::kBUnits];
        FORGE_UNROLL
        for (int j = 0; j < T::kBUnits; ++j)
          b[j] = fetch_unit<T>(lds.keys, unit + (position0 + T::b_unit_row(lane, j)) * Stage::kStride +
                                             slab * kUnitsOfRow + T::b_unit(lane, j));
        FORGE_UNROLL
        for (int m = 0; m < kTilesOfWave; ++m) {
          if (!has_tile(m)) continue;
          FORGE_UNROLL
          for (int half = 0; half < kHalves; ++half) {
            FORGE_UNROLL
            for (int part = 0; part < kParts; ++part) multiply_half<T>(half, query[part][m][slab], b, sums[m][part]);
          }
        }
        keep_schedule();
      }
      FORGE_UNROLL
      for (int m = 0; m < kTilesOfWave; ++m)
        if (has_tile(m)) store_sums(m, position0, sums[m], factors, lds);
    }
  }
  /// Adds up the sums of a chunk and writes the scores of positions that rows see.
  FORGE_DEVICE static void write_chunk(int chunk, const Lds& lds, float* scores) {
    constexpr int kListSums = C::kWeighted ? kHeadTiles : 1;
    FORGE_LOOP
    for (int i = opaque(thread_id()); i < kRows * kLists * kPositions; i += kThreads) {  // addresses are not kept
      const int list = i / kPositions, position = i % kPositions, group = (chunk * kPositions + position) / kGroup;
      float score = lds.sums.get(list * kListSums * kSumStride + position);
      FORGE_UNROLL
      for (int h = 1; h < kListSums; ++h) score += lds.sums.get((list * kListSums + h) * kSumStride + position);
      write(scores + static_cast<u64>(list) * kScores, group, lds.positions.get(list / kLists) + 1 - group * kGroup,
            score);
    }
  }

  /// Scores chunks `first`, `first` + stride, ... of the rows into scores [rows][lists][kScores].
  FORGE_DEVICE static void run(const ScoredRows& rows, int first, int stride, Lds& lds, float* scores) {
    set_scales(rows, lds);
    barrier();
    Query query;
    load_query(rows, lds, query);
    Factors factors;
    load_factors(rows, lds, factors);
    Stage::each_chunk(rows, first, stride, lds.keys, [&](int chunk, int unit) {
      multiply(query, factors, unit, lds);
      barrier();
      write_chunk(chunk, lds, scores);
    });
  }
};

/// The kernels with these scores.
template <class C>
struct ScoreKeyTiles : ScoreKeys<C, KeyScoreTiles<C>> {
  static_assert(C::kRowsTogether == 1, "a block scores one row");
};
template <class C>
struct SelectKeyTiles : SelectKeys<C, KeyScoreTiles<C>> {};

}  // namespace forge::gpu
