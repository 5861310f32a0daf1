#pragma once
// Chunks of recurrent_tiles.h where each row of a state has its own decay (gated delta rule of Kimi Linear: arXiv
// 2510.26692, section 3). With a_t,d the decay of row d by token t:
//
//   A_ij = w_i sum over d of k_i,d k_j,d a_j+1,d ... a_i,d    for j < i
//   P_ij =     sum over d of q_i,d k_j,d a_j+1,d ... a_i,d    for j <= i
//
// The decays between two tokens are split as recurrent_levels.h says; e^x is needed for the a_t,d only. A level's
// products are one tile for A and one for P. K and Q of the products with the state have the decay since the chunk's
// beginning, the transposed keys that until its end.
//
// A thread has 4 tokens of a unit, which is 8 rows of the state, and 32 neighbouring lanes have all tokens of 32 rows.
//
//   phase   all waves                                              their place in shared memory
//   1       load keys, queries and decays; squares                 squares: where pivots will be
//   2       normalise; products of near pairs; factors of levels   factors: over keys, queries and turned
//   3       products of the levels: P and A                        seen, solved, pivots
//   4       keys, queries, transposed keys                         keys, queries, turned

#include "kernels/gpu/recurrent_levels.h"

namespace forge::gpu {

template <class C>
struct RowDecay : RowLevels<C, 8> {
  using Base = RowLevels<C, 8>;
  using R = typename C::Rule;
  using T = typename C::Tile;
  using S = Strip<T>;
  using RuleArgs = typename R::Args;
  using Chunk = typename Base::Chunk;
  using Base::kChunk, Base::kBlock, Base::kThreads, Base::kSlab, Base::kSlabs, Base::kDim;
  using Base::kGroup, Base::kGroups, Base::kLaneRows, Base::kGroupLanes, Base::kSlabLanes, Base::kLevels, Base::works;
  using Base::kKeys, Base::kQueries, Base::kTurned, Base::kRegion, Base::kSquare, Base::own_thread, Base::own_lane;
  using Rows = typename Base::Rows;
  using Packed = typename Base::Packed;
  using Job = typename Base::Job;
  using Around = typename Base::Around;
  static_assert(R::kSolves, "only the delta rule has a decay for each row");

  static_assert(kSlabLanes == 32, "32 neighbouring lanes have all tokens of 32 rows");
  /// A level's keys have 32 rows a slab, the right ones first, and its queries 16.
  static constexpr int kLevelUnits = kRegion + kRegion / 2;
  static constexpr int kSeen = kLevels * kLevelUnits, kSolved = kSeen + kSquare, kPivots = kSolved + kSquare;
  static constexpr int kUnits = kPivots + 2 * kBlock * kBlock / 4;
  static constexpr int kZeroed = kUnits - kSeen;
  static_assert(kSlabs * 2 * kChunk <= 2 * kBlock * kBlock, "squares lie where pivots will");
  enum Gate { kWeight, kGates };
  struct Lds {
    Shared<U32x4, kUnits> units;
    Shared<F32x4, kSlabs * kGroups * kGroup> near;  ///< [slab][group][4][4], see store_near
    Shared<float, kDim> decays;                     ///< of the whole chunk
    Shared<float, 2 * kGates * kChunk> gates;
  };
  /// What a thread stores when the levels' factors have been read.
  struct Held {
    Packed keys[kGroup], queries[kGroup];
    u32 turned[kLaneRows][kGroup / 2];
  };

  FORGE_DEVICE static float weight(const Lds& lds, const Chunk& chunk, int token) {
    return lds.gates.get(chunk.gates + token);
  }
  /// A function of a tile's first row and of a lane's sum: the chunk's decay of that row of the state.
  FORGE_DEVICE static auto decay_of_state(const Lds& lds, const Chunk&) {
    return [&lds, lane = own_lane()](int first, int i) { return lds.decays.get(first + S::row(lane, i)); };
  }

  /// Phase 1. Tokens behind the last one have keys and queries of 0 and do not decay.
  FORGE_DEVICE static void load_rows(const RuleArgs& args, const Chunk& chunk, int head, Rows& keys, Rows& queries,
                                     Rows& decays) {
    const Job job{};
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      const int from = chunk.t0 + (job.token(t) < chunk.count ? job.token(t) : 0);
      Base::load_row(job, R::key(args, from, head), keys[t]);
      Base::load_row(job, R::query(args, from, head), queries[t]);
      Base::load_row(job, R::log_decays(args, from, head), decays[t]);
      keep_schedule();
    }
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      const bool real = job.token(t) < chunk.count;
      FORGE_UNROLL
      for (int e = 0; e < kLaneRows; ++e) {
        keys[t][e] = real ? keys[t][e] : 0;
        queries[t][e] = real ? queries[t][e] : 0;
        decays[t][e] = real ? exp_of(decays[t][e]) : 1;
      }
    }
  }
  /// The index of the squares of a group's keys (0) or queries (1) in a slab: a unit.
  FORGE_DEVICE static int squares_at(int slab, int which, int group) {
    return kPivots + (slab * 2 + which) * kGroups + group;
  }
  FORGE_DEVICE static void store_squares(const Rows& keys, const Rows& queries, Lds& lds) {
    const Job job{};
    F32x4 squares[2] = {};
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      FORGE_UNROLL
      for (int e = 0; e < kLaneRows; ++e) {
        squares[0].at[t] = fma_of(keys[t][e], keys[t][e], squares[0].at[t]);
        squares[1].at[t] = fma_of(queries[t][e], queries[t][e], squares[1].at[t]);
      }
      FORGE_UNROLL
      for (auto& one : squares) one.at[t] = sum_lanes<kUnitsOfRow>(one.at[t]);
    }
    if (job.real && job.unit < 2)
      lds.units.set(squares_at(job.slab, job.unit, job.group),
                    __builtin_bit_cast(U32x4, job.unit == 0 ? squares[0] : squares[1]));
  }

  /// Divides keys and queries by their lengths. A lane finds those of one token for the four lanes that have it.
  FORGE_DEVICE static void normalise(const Lds& lds, Rows& keys, Rows& queries) {
    const Job job{};
    float inverse[2];
    FORGE_UNROLL
    for (int which = 0; which < 2; ++which) {
      float squares = R::kEpsilon;
      FORGE_UNROLL
      for (int slab = 0; slab < kSlabs; ++slab)
        squares += lds.units.scalar(squares_at(slab, which, job.group) * 4 + job.unit);
      inverse[which] = 1.0f / sqrt_of(squares);
    }
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      const int lane = lane_id() / kUnitsOfRow * kUnitsOfRow + t;
      const float of_key = shuffle(inverse[0], lane), of_query = shuffle(inverse[1], lane);
      FORGE_UNROLL
      for (int e = 0; e < kLaneRows; ++e) {
        keys[t][e] *= of_key;
        queries[t][e] *= of_query;
      }
    }
  }
  /// What the levels multiply: keys and queries with the decays of the thread's tokens up to their own, and keys with
  /// those of the tokens behind them.
  struct Factors {
    Rows right, queries, left;
  };
  /// Stores the sums of the pairs of a group's tokens over a slab, as a 4 by 4 matrix: P on and below the diagonal, A /
  /// w above it (element [j][i] is that of i and j). Each of four lanes has a row. Then finds the factors.
  FORGE_DEVICE static void store_near(const Rows& keys, const Rows& queries, const Rows& decays, Factors& factors,
                                      Around& around, Lds& lds) {
    const Job job{};
    float sums[kGroup * kGroup] = {};
    FORGE_UNROLL
    for (int e = 0; e < kLaneRows; ++e) {
      float decay = 1;
      FORGE_UNROLL
      for (int j = 0; j < kGroup; ++j) {
        float kept = keys[j][e];
        FORGE_UNROLL
        for (int i = j; i < kGroup; ++i) {
          if (i > j) kept *= decays[i][e];
          float& p = sums[i * kGroup + j];
          p = fma_of(queries[i][e], kept, p);
          float& a = sums[j * kGroup + i];
          if (i > j) a = fma_of(keys[i][e], kept, a);
        }
        decay *= decays[j][e];
        factors.right[j][e] = keys[j][e] * decay;
        factors.queries[j][e] = queries[j][e] * decay;
        factors.left[j][e] = kept;
      }
      around.before[e] = around.behind[e] = 1;
      around.all[e] = decay;
      keep_schedule();
    }
    const bool upper = job.unit / 2 != 0, odd = job.unit % 2 != 0;
    float half[2 * kGroup], row[kGroup];
    Base::template share_sums<2>(sums, upper, half);
    Base::template share_sums<1>(half, odd, row);
    if (job.real)
      lds.near.set((job.slab * kGroups + job.group) * kGroup + job.unit, F32x4{{row[0], row[1], row[2], row[3]}});
  }

  /// Stores the factors of a level whose halves have `Half` tokens. Then `around` is that of the next level.
  template <int Half>
  FORGE_DEVICE static void store_level(const Factors& factors, Around& around, Lds& lds) {
    constexpr int kLevel = Half == 4 ? 0 : Half == 8 ? 1 : 2;
    const Job job{};
    const bool right = Base::is_right(job, Half);
    const int at = kLevel * kLevelUnits + job.slab * kSquare;
    const int queries_at = kLevel * kLevelUnits + kRegion + job.slab * (kSquare / 2);
    const auto each_token = [&](auto&& store) {
      FORGE_UNROLL
      for (int t = 0; t < kGroup; ++t) {
        store(t, Base::row_of_side(job, Half, t));
        keep_schedule();
      }
    };
    if (job.real && right)
      each_token([&](int t, int row) {
        Base::store_part(job, at + unit_place(row, job.unit), Base::product(factors.right[t], around.before), lds);
        Base::store_part(job, queries_at + unit_place(row, job.unit), Base::product(factors.queries[t], around.before),
                         lds);
      });
    if (job.real && !right)
      each_token([&](int t, int row) {
        Base::store_part(job, at + unit_place(kBlock + row, job.unit), Base::product(factors.left[t], around.behind),
                         lds);
      });
    Base::template widen<Half>(job, around);
  }
  FORGE_DEVICE static void hold(const Factors& factors, const Around& around, Held& held) {
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      held.keys[t] = Base::product(factors.right[t], around.before);
      held.queries[t] = Base::product(factors.queries[t], around.before);
      Base::keep(held.keys[t]);
      Base::keep(held.queries[t]);
      keep_schedule();
    }
    FORGE_UNROLL
    for (int e = 0; e < kLaneRows; ++e) {
      FORGE_UNROLL
      for (int t = 0; t < kGroup; t += 2)
        held.turned[e][t / 2] =
            Base::kept(f16_pair(factors.left[t][e] * around.behind[e], factors.left[t + 1][e] * around.behind[e]));
    }
    keep_schedule();
  }

  /// Phases 1 and 2.
  FORGE_DEVICE static void begin(const RuleArgs& args, const Chunk& chunk, int head, Lds& lds, Held& held) {
    Rows keys, queries, decays;
    if (works()) {
      load_rows(args, chunk, head, keys, queries, decays);
      if constexpr (R::kUnit) store_squares(keys, queries, lds);
    }
    if (wave_id() == C::kWaves - 1 && lane_id() < kChunk)
      lds.gates.set(chunk.gates + lane_id(),
                    lane_id() < chunk.count ? R::weight(args, chunk.t0 + lane_id(), head) : 0.0f);
    barrier();
    if (works()) {
      if constexpr (R::kUnit) normalise(lds, keys, queries);
      Factors factors;
      Around around;
      store_near(keys, queries, decays, factors, around, lds);
      store_level<4>(factors, around, lds);
      store_level<8>(factors, around, lds);
      store_level<16>(factors, around, lds);
      if (const Job job{}; job.real && job.group == 0) {
        FORGE_UNROLL
        for (int e = 0; e < kLaneRows; ++e) lds.decays.set(job.row(e), around.all[e]);
      }
      hold(factors, around, held);
    }
    barrier();
  }

  FORGE_DEVICE static void set_a(const Chunk& chunk, int i, int j, float value, Lds& lds) {
    const float a = weight(lds, chunk, i) * value;
    if (i / kBlock == j / kBlock)
      lds.units.set_word(kPivots * 4 + j * kBlock + i % kBlock, __builtin_bit_cast(u32, a));
    else
      lds.units.set_half(S::half_at(kSolved, i, j), f16_of_f32(-a));
  }
  /// P and A of pairs of tokens of different groups. A job is a level's keys or queries and columns of its tile.
  FORGE_DEVICE static void store_products(const Chunk& chunk, Lds& lds) {
    constexpr int kAcross = kBlock / T::kN;
    FORGE_LOOP
    for (int product = wave_id(); product < kLevels * 2 * kAcross; product += C::kWaves) {
      const int lane = own_lane(), level = product / (2 * kAcross), column0 = product % kAcross * T::kN;
      const bool is_query = product / kAcross % 2 != 0;
      const int first = level * kLevelUnits;
      float dots[S::kSums] = {};
      FORGE_UNROLL
      for (int slab = 0; slab < kSlabs; ++slab) {
        U32x4 a[T::kAUnits], b[T::kBUnits];
        fetch_a<T>(lds.units, first + (is_query ? kRegion + slab * (kSquare / 2) : slab * kSquare), a);
        fetch_b<T>(lds.units, first + slab * kSquare + (kBlock + column0) * kUnitsOfRow, b);
        FORGE_UNROLL
        for (int half = 0; half < kHalves; ++half) multiply_half<T>(half, a, b, dots);
        keep_schedule();
      }
      FORGE_UNROLL
      for (int e = 0; e < S::kSums; ++e) {
        const auto [i, j, counts] = Base::pair_of(level, T::c_row(lane, e), column0 + T::c_column(lane, e));
        if (!counts) continue;
        if (is_query)
          lds.units.set_half(S::half_at(kSeen, i, j), f16_of_f32(dots[e]));
        else
          set_a(chunk, i, j, dots[e], lds);
      }
    }
  }
  /// P and A of pairs of tokens of a group.
  FORGE_DEVICE static void add_near(const Chunk& chunk, Lds& lds) {
    constexpr int kPairs = kGroup * kGroup;
    const int thread = own_thread();
    FORGE_UNROLL
    for (int pass = 0; pass < ceil_div(kGroups * kPairs, kThreads); ++pass) {
      const int pair = pass * kThreads + thread;
      if (pair >= kGroups * kPairs) continue;
      float sum = 0;
      FORGE_UNROLL
      for (int slab = 0; slab < kSlabs; ++slab) sum += lds.near.scalar(slab * kGroups * kPairs + pair);
      const int first = pair / kPairs * kGroup, row = first + pair / kGroup % kGroup, column = first + pair % kGroup;
      if (column <= row)
        lds.units.set_half(S::half_at(kSeen, row, column), f16_of_f32(sum));
      else
        set_a(chunk, column, row, sum, lds);
    }
  }
  /// Phases 3 and 4.
  FORGE_DEVICE static void finish(const Chunk& chunk, Lds& lds, const Held& held) {
    add_near(chunk, lds);
    store_products(chunk, lds);
    barrier();
    const Job job{};
    if (!works() || !job.real) return;
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      const int at = job.slab * kSquare + unit_place(job.token(t), job.unit);
      Base::store_part(job, kKeys + at, held.keys[t], lds);
      Base::store_part(job, kQueries + at, held.queries[t], lds);
    }
    FORGE_UNROLL
    for (int e = 0; e < kLaneRows; ++e) {
      const int word = S::half_at(kTurned, job.row(e), job.token(0)) / 2;
      lds.units.set_word(word, held.turned[e][0]);
      lds.units.set_word(word + 1, held.turned[e][1]);
    }
  }
};

}  // namespace forge::gpu
