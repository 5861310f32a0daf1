#pragma once
// Chunks of recurrent_tiles.h where all rows of a state have one decay. With G_i = sum over j <= i of log decay_j, a
// pair of tokens needs one exponential, e^(G_i - G_j), by which the product of their keys or queries is multiplied.
//
//   phase     all waves                                       one wave
//   1         normalise keys and queries, store them          G
//   2         products for P and A; transpose keys

#include "kernels/gpu/recurrent_chunk.h"

namespace forge::gpu {

template <class C>
struct HeadDecay : StateChunk<C> {
  using Base = StateChunk<C>;
  using R = typename C::Rule;
  using T = typename C::Tile;
  using S = Strip<T>;
  using RuleArgs = typename R::Args;
  using Chunk = typename Base::Chunk;
  using Base::kChunk, Base::kBlock, Base::kThreads, Base::kSlab, Base::kSlabs, Base::kDim;
  using Base::kKeys, Base::kQueries, Base::kTurned, Base::kRegion, Base::kSquare, Base::own_thread, Base::own_lane;
  static constexpr int kSeen = 3 * kRegion, kSolved = kSeen + kSquare;
  static constexpr int kPivots = R::kSolves ? kSolved + kSquare : kSolved;
  static constexpr int kPivotUnits = R::kSolves ? 2 * kBlock * kBlock / 4 : 0;
  static constexpr int kZeroed = kPivots - kSeen;  ///< units from kSeen on; above the diagonal they stay zero
  /// Of each token: G, w, e^G and e^(G_last - G).
  enum Gate { kTotal, kWeight, kFromStart, kToEnd, kGates };
  struct Lds {
    Shared<U32x4, kPivots + kPivotUnits> units;
    Shared<float, 2 * kGates * kChunk> gates;  ///< of this chunk and of the one before it
  };
  static constexpr bool kKeepsAddresses = true;
  struct Held {};  ///< registers that begin() fills and finish() reads

  FORGE_DEVICE static float gate(const Lds& lds, const Chunk& chunk, Gate which, int token) {
    return lds.gates.get(chunk.gates + which * kChunk + token);
  }
  FORGE_DEVICE static float weight(const Lds& lds, const Chunk& chunk, int token) {
    return gate(lds, chunk, kWeight, token);
  }
  FORGE_DEVICE static float from_start(const Lds& lds, const Chunk& chunk, int token) {
    return gate(lds, chunk, kFromStart, token);
  }
  FORGE_DEVICE static float to_end(const Lds& lds, const Chunk& chunk, int token) {
    return gate(lds, chunk, kToEnd, token);
  }
  /// A function of a tile's first row and of a lane's sum: the chunk's decay of that row of the state.
  FORGE_DEVICE static auto decay_of_state(const Lds& lds, const Chunk& chunk) {
    const float keep = gate(lds, chunk, kFromStart, kChunk - 1);
    return [keep](int, int) { return keep; };
  }

  // A team of kTeam lanes has a token's row, kUnitsOfLane units of eight elements each.
  static constexpr int kTeam = kSlabs == 4 ? 16 : kSlabs == 2 ? 8 : 4, kUnitsOfLane = kSlabs * kUnitsOfRow / kTeam;
  static constexpr int kTeams = kThreads / kTeam, kPasses = ceil_div(kChunk, kTeams);
  /// A lane's elements of a token's row on their way to shared memory.
  using Row = F32x4[kUnitsOfLane * 2];
  FORGE_DEVICE static void load_row(const float* from, int thread, Row& row) {
    FORGE_UNROLL
    for (int i = 0; i < kUnitsOfLane * 2; ++i) {
      const int unit = i / 2 * kTeam + thread % kTeam;
      const int first = unit / kUnitsOfRow * kSlab + S::four_of(unit % kUnitsOfRow, i % 2);
      row[i] = F32x4{};
      if (Base::is_row(first)) row[i] = __builtin_bit_cast(F32x4, load16(from + first));
    }
  }
  /// Stores a token's elements, divided by their length. All lanes of the wave.
  FORGE_DEVICE static void store_row(const Row& row, const Chunk& chunk, int thread, int token, int region, Lds& lds) {
    float factor = 1;
    if constexpr (R::kUnit) {
      float squares = 0;
      FORGE_UNROLL
      for (int i = 0; i < kUnitsOfLane * 2; ++i) {
        FORGE_UNROLL
        for (int e = 0; e < 4; ++e) squares = fma_of(row[i].at[e], row[i].at[e], squares);
      }
      factor = 1.0f / sqrt_of(sum_lanes<kTeam>(squares) + R::kEpsilon);
    }
    if (token >= kChunk) return;
    if (token >= chunk.count) factor = 0;
    FORGE_UNROLL
    for (int i = 0; i < kUnitsOfLane; ++i) {
      const int unit = i * kTeam + thread % kTeam;
      U32x4 halves;
      FORGE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const auto& four = row[i * 2 + h].at;
        halves.at[2 * h] = f16_pair(four[0] * factor, four[1] * factor);
        halves.at[2 * h + 1] = f16_pair(four[2] * factor, four[3] * factor);
      }
      lds.units.set(region + unit / kUnitsOfRow * kSquare + unit_place(token, unit % kUnitsOfRow), halves);
    }
  }
  /// Loads keys and queries and stores them in shared memory. All loads are in flight at once.
  FORGE_DEVICE static void store_rows(const RuleArgs& args, const Chunk& chunk, int head, Lds& lds) {
    const int thread = own_thread();
    Row keys[kPasses], queries[kPasses];
    FORGE_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      const int token = pass * kTeams + thread / kTeam;
      const int t = chunk.t0 + (token < chunk.count ? token : 0);  // store_row multiplies it by 0
      load_row(R::key(args, t, head), thread, keys[pass]);
      load_row(R::query(args, t, head), thread, queries[pass]);
    }
    FORGE_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      const int token = pass * kTeams + thread / kTeam;
      store_row(keys[pass], chunk, thread, token, kKeys, lds);
      store_row(queries[pass], chunk, thread, token, kQueries, lds);
    }
  }
  /// One wave: the gates of the chunk's tokens. Decays below e^-64 count as that.
  FORGE_DEVICE static void store_gates(const RuleArgs& args, const Chunk& chunk, int head, Lds& lds) {
    const int lane = lane_id(), token = lane % kChunk;
    const bool real = token < chunk.count;
    float total = 0, weight = 0;
    if (real) {
      total = max_of(R::log_decay(args, chunk.t0 + token, head), -64.0f);
      weight = R::weight(args, chunk.t0 + token, head);
    }
    FORGE_UNROLL
    for (int apart = 1; apart < kChunk; apart *= 2) {
      const float before = shuffle(total, token >= apart ? lane - apart : lane);
      if (token >= apart) total += before;
    }
    const float last = shuffle(total, kChunk - 1);
    if (lane >= kChunk) return;
    lds.gates.set(chunk.gates + kTotal * kChunk + token, total);
    lds.gates.set(chunk.gates + kWeight * kChunk + token, weight);
    lds.gates.set(chunk.gates + kFromStart * kChunk + token, exp_of(total));
    lds.gates.set(chunk.gates + kToEnd * kChunk + token, exp_of(last - total));
  }

  /// P, and what A is needed for, in tiles of 16 by 16 tokens: those on the diagonal and below it.
  FORGE_DEVICE static void store_products(const Chunk& chunk, Lds& lds) {
    constexpr int kParts = 3, kAcross = 16 / T::kN;
    FORGE_LOOP
    for (int job = wave_id(); job < (R::kSolves ? 2 : 1) * kParts; job += C::kWaves) {
      const int lane = own_lane();
      const bool queries = job < kParts;
      const int part = job % kParts, ti = part > 0 ? 1 : 0, tj = part > 1 ? 1 : 0;
      float dots[kAcross][S::kSums] = {};
      FORGE_UNROLL
      for (int slab = 0; slab < kSlabs; ++slab) {
        U32x4 a[T::kAUnits];
        fetch_a<T>(lds.units, (queries ? kQueries : kKeys) + slab * kSquare + ti * kBlock * kUnitsOfRow, a);
        FORGE_UNROLL
        for (int n = 0; n < kAcross; ++n) {
          U32x4 b[T::kBUnits];
          fetch_b<T>(lds.units, kKeys + slab * kSquare + (tj * kBlock + n * T::kN) * kUnitsOfRow, b);
          FORGE_UNROLL
          for (int half = 0; half < kHalves; ++half) multiply_half<T>(half, a, b, dots[n]);
        }
      }
      FORGE_UNROLL
      for (int n = 0; n < kAcross; ++n) {
        FORGE_UNROLL
        for (int e = 0; e < S::kSums; ++e) {
          const int row = T::c_row(lane, e), column = n * T::kN + T::c_column(lane, e);
          const int i = ti * kBlock + row, j = tj * kBlock + column;
          const float apart = gate(lds, chunk, kTotal, i) - gate(lds, chunk, kTotal, j);
          const float value = dots[n][e] * exp_of(min_of(apart, 0));
          if (queries) {
            lds.units.set_half(S::half_at(kSeen, i, j), f16_of_f32(j <= i ? value : 0));
          } else {
            const float a = gate(lds, chunk, kWeight, i) * value;
            if (ti == tj)
              lds.units.set_word(kPivots * 4 + (ti * kBlock + column) * kBlock + row,
                                 __builtin_bit_cast(u32, j < i ? a : 0));
            else
              lds.units.set_half(S::half_at(kSolved, i, j), f16_of_f32(-a));
          }
        }
      }
    }
  }
  /// Transposes the keys. A thread takes two neighbouring state rows of the eight tokens of a unit.
  FORGE_DEVICE static void store_turned(Lds& lds) {
    constexpr int kJobs = kDim / 2 * kUnitsOfRow;
    const int thread = own_thread();
    FORGE_UNROLL
    for (int pass = 0; pass < ceil_div(kJobs, kThreads); ++pass) {
      const int job = pass * kThreads + thread, unit = job / (kDim / 2), row = job % (kDim / 2) * 2;
      if (kJobs % kThreads != 0 && job >= kJobs) continue;
      u32 two[8];
      FORGE_UNROLL
      for (int j = 0; j < 8; ++j) {
        const int token = S::four_of(unit, j / 4) + j % 4;
        const int half = S::half_at(kKeys + row / kSlab * kSquare, token, row % kSlab);
        two[j] = __builtin_bit_cast(u32, lds.units.scalar(half / 2));
      }
      U32x4 first, second;
      FORGE_UNROLL
      for (int w = 0; w < 4; ++w) {
        first.at[w] = low_halves(two[2 * w], two[2 * w + 1]);
        second.at[w] = high_halves(two[2 * w], two[2 * w + 1]);
      }
      lds.units.set(kTurned + unit_place(row, unit), first);
      lds.units.set(kTurned + unit_place(row + 1, unit), second);
    }
  }

  FORGE_DEVICE static void begin(const RuleArgs& args, const Chunk& chunk, int head, Lds& lds, Held&) {
    store_rows(args, chunk, head, lds);
    if (wave_id() == C::kWaves - 1) store_gates(args, chunk, head, lds);
    barrier();
  }
  FORGE_DEVICE static void finish(const Chunk& chunk, Lds& lds, const Held&) {
    store_products(chunk, lds);
    store_turned(lds);
  }
};

}  // namespace forge::gpu
