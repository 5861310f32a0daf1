#pragma once
// Chunks of recurrent_tiles.h for RWKV-7 (arXiv 2503.14456): each row of a state has its own decay, and a token writes
// two outer products, of its value with one key (k) and of what it reads by its removal key (a) with another one (b).
// With w_t,d the decay of row d by token t, S the state before the chunk, X_t the rows of the state after token t:
//
//   s_i = X_(i-1)^T a_i,   X_i = w_i X_(i-1) + b_i s_i + k_i v_i,   y_i = X_i^T r_i
//
//   B_ij = sum over d of a_i,d b_j,d w_j+1,d ... w_i-1,d    for j < i     K_ij: the same with k_j
//   P_ij = sum over d of r_i,d b_j,d w_j+1,d ... w_i,d      for j <= i    Q_ij: the same with k_j
//
//   s = (I - B)^-1 (a~ S + K V)       a~: a times the decays of the tokens before its own
//   Y = r~ S + P s + Q V              r~: r times the decays up to its own token's
//   S = w_1 ... w_n S + b^T s + k^T V, b and k times the decays of the tokens behind theirs
//
// The decays between two tokens are split as recurrent_levels.h says. A level has a and r on the right, b and k on the
// left, and a tile of each pair of them. A thread has 4 tokens of 4 rows: five vectors of 8 rows and their factors
// would not fit into its registers. So 64 lanes have all tokens of 32 rows, and the products of the decays of 16
// tokens, which may be another wave's, pass through shared memory.
//
//   phase   all waves                                              their place in shared memory
//   1       load a, r, b, k, w                                     -
//   2       products of near pairs; factors of levels              factors: over keys, queries, turned, turned values
//   3       products of the levels: B, K, P, Q                     solved and pivots, fed, seen, seen values
//   4       a~, r~, b and k transposed                             keys, queries, turned, turned values

#include "kernels/gpu/recurrent_levels.h"

namespace forge::gpu {

template <class C>
struct TwoKeys : RowLevels<C, 4> {
  using Base = RowLevels<C, 4>;
  using R = typename C::Rule;
  using T = typename C::Tile;
  using S = Strip<T>;
  using RuleArgs = typename R::Args;
  using Chunk = typename Base::Chunk;
  using Base::kChunk, Base::kBlock, Base::kThreads, Base::kSlab, Base::kSlabs, Base::kDim;
  using Base::kGroup, Base::kGroups, Base::kLaneRows, Base::kGroupLanes, Base::kSlabLanes, Base::kLevels, Base::works;
  using Base::kRegion, Base::kSquare, Base::own_thread, Base::own_lane;
  using Rows = typename Base::Rows;
  using Packed = typename Base::Packed;
  using Job = typename Base::Job;
  using Around = typename Base::Around;
  static_assert(C::kRows <= 64, "shared memory has room for the levels of 64 rows");
  static_assert(kSlabLanes == 64 && kGroupLanes == 8, "a group's 8 lanes share two 4 by 4 matrices");

  static constexpr bool kTwoKeys = true;
  /// Keys are not of unit length: what they add to a state within a chunk may be far larger than the values.
  static constexpr float kMost = 512;
  static constexpr int kTurnedValues = Base::kTurned + kRegion;
  /// A level has the 16 rows of a, r, b and k, each [slab][row].
  enum Side { kRemoval, kReading, kRemoved, kValues, kSides };
  static constexpr int kSideUnits = kRegion / 2, kLevelUnits = kSides * kSideUnits;
  static constexpr int kSeen = kLevels * kLevelUnits, kSeenValues = kSeen + kSquare, kFed = kSeenValues + kSquare;
  static constexpr int kSolved = kFed + kSquare, kPivots = kSolved + kSquare;
  static constexpr int kUnits = kPivots + 2 * kBlock * kBlock / 4;
  static constexpr int kZeroed = kUnits - kSeen, kGates = 0;
  static_assert(kTurnedValues + kRegion <= kSeen);
  struct Lds {
    Shared<U32x4, kUnits> units;
    Shared<F32x4, kSlabs * kGroups * kGroupLanes> near;  ///< [slab][group][b, k][4][4], see store_near
    Shared<F32x4, 2 * kDim / 4> halves;                  ///< decays of 16 tokens
    Shared<F32x4, kDim / 4> decays;                      ///< of the whole chunk
  };
  struct Inputs {
    Rows removal, reading, removed, values, decays;  ///< a, r, b, k, w
  };
  /// What the levels multiply: a and r with the decays of the thread's tokens before and up to their own, b and k with
  /// those of the tokens behind them.
  struct Factors {
    Rows removal, reading, removed, values;
  };
  /// What a thread stores when the levels' factors have been read.
  struct Held {
    Packed keys[kGroup], queries[kGroup];
    u32 turned[kLaneRows][kGroup / 2], turned_values[kLaneRows][kGroup / 2];
  };

  FORGE_DEVICE static float weight(const Lds&, const Chunk&, int) { return 1; }
  /// A function of a tile's first row and of a lane's sum: the chunk's decay of that row of the state.
  FORGE_DEVICE static auto decay_of_state(const Lds& lds, const Chunk&) {
    return [&lds, lane = own_lane()](int first, int i) { return lds.decays.scalar(first + S::row(lane, i)); };
  }

  /// Phase 1. Tokens behind the last one have vectors of 0 and do not decay.
  FORGE_DEVICE static void load_inputs(const RuleArgs& args, const Chunk& chunk, int head, Inputs& x) {
    const Job job{};
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      const int from = chunk.t0 + (job.token(t) < chunk.count ? job.token(t) : 0);
      Base::load_row(job, R::removal(args, from, head), x.removal[t]);
      Base::load_row(job, R::query(args, from, head), x.reading[t]);
      Base::load_row(job, R::removed(args, from, head), x.removed[t]);
      Base::load_row(job, R::key(args, from, head), x.values[t]);
      Base::load_row(job, R::decays(args, from, head), x.decays[t]);
      keep_schedule();
    }
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      const bool real = job.token(t) < chunk.count;
      FORGE_UNROLL
      for (int e = 0; e < kLaneRows; ++e) {
        x.removal[t][e] = real ? x.removal[t][e] : 0;
        x.reading[t][e] = real ? x.reading[t][e] : 0;
        x.removed[t][e] = real ? x.removed[t][e] : 0;
        x.values[t][e] = real ? x.values[t][e] : 0;
        x.decays[t][e] = real ? x.decays[t][e] : 1;
      }
    }
  }

  /// Adds the products of one row's pairs of tokens to a 4 by 4 matrix: P or Q on and below the diagonal, B or K above
  /// it (element [j][i] is that of i and j). left: a key's elements, then those times the decays of the tokens behind
  /// them.
  FORGE_DEVICE static void add_pairs(const Inputs& x, const Rows& keys, int e, float* sums, Rows& left) {
    FORGE_UNROLL
    for (int j = 0; j < kGroup; ++j) {
      float kept = keys[j][e];
      FORGE_UNROLL
      for (int i = j; i < kGroup; ++i) {
        if (i > j) {
          float& b = sums[j * kGroup + i];
          b = fma_of(x.removal[i][e], kept, b);
          kept *= x.decays[i][e];
        }
        float& p = sums[i * kGroup + j];
        p = fma_of(x.reading[i][e], kept, p);
      }
      left[j][e] = kept;
    }
  }
  /// Stores the sums of the pairs of a group's tokens over a slab: the matrix of b, then that of k. Each of eight lanes
  /// has a row. Then finds the factors.
  FORGE_DEVICE static void store_near(const Inputs& x, Factors& factors, Around& around, Lds& lds) {
    const Job job{};
    constexpr int kMatrix = kGroup * kGroup;
    float sums[2 * kMatrix] = {};
    FORGE_UNROLL
    for (int e = 0; e < kLaneRows; ++e) {
      add_pairs(x, x.removed, e, sums, factors.removed);
      add_pairs(x, x.values, e, sums + kMatrix, factors.values);
      float decay = 1;
      FORGE_UNROLL
      for (int t = 0; t < kGroup; ++t) {
        factors.removal[t][e] = x.removal[t][e] * decay;
        decay *= x.decays[t][e];
        factors.reading[t][e] = x.reading[t][e] * decay;
      }
      around.before[e] = around.behind[e] = 1;
      around.all[e] = decay;
      keep_schedule();
    }
    float matrix[kMatrix], half[2 * kGroup], row[kGroup];
    Base::template share_sums<4>(sums, job.lane / 4 != 0, matrix);
    Base::template share_sums<2>(matrix, job.lane / 2 % 2 != 0, half);
    Base::template share_sums<1>(half, job.lane % 2 != 0, row);
    if (job.real)
      lds.near.set((job.slab * kGroups + job.group) * kGroupLanes + job.lane, F32x4{{row[0], row[1], row[2], row[3]}});
  }

  /// Stores the factors of a level whose halves have `Half` tokens.
  template <int Half>
  FORGE_DEVICE static void store_level(const Factors& factors, const Around& around, Lds& lds) {
    constexpr int kLevel = Half == 4 ? 0 : Half == 8 ? 1 : 2;
    const Job job{};
    if (!job.real) return;
    const auto store_both = [&](const Rows& first, const Rows& second, const auto& decays, int side) {
      FORGE_UNROLL
      for (int t = 0; t < kGroup; ++t) {
        const int at = kLevel * kLevelUnits + side * kSideUnits + job.slab * (kSquare / 2) +
                       unit_place(Base::row_of_side(job, Half, t), job.unit);
        Base::store_part(job, at, Base::product(first[t], decays), lds);
        Base::store_part(job, at + kSideUnits, Base::product(second[t], decays), lds);
        keep_schedule();
      }
    };
    if (Base::is_right(job, Half))
      store_both(factors.removal, factors.reading, around.before, kRemoval);
    else
      store_both(factors.removed, factors.values, around.behind, kRemoved);
  }

  FORGE_DEVICE static void turn(const Rows& left, const Around& around, u32 (&turned)[kLaneRows][kGroup / 2]) {
    FORGE_UNROLL
    for (int e = 0; e < kLaneRows; ++e) {
      FORGE_UNROLL
      for (int t = 0; t < kGroup; t += 2)
        turned[e][t / 2] = Base::kept(f16_pair(left[t][e] * around.behind[e], left[t + 1][e] * around.behind[e]));
    }
    keep_schedule();
  }
  /// Takes in the decays of the other 16 tokens.
  FORGE_DEVICE static void hold(const Factors& factors, Around& around, Lds& lds, Held& held) {
    const Job job{};
    const int quad = job.row(0) / 4;
    const bool right = Base::is_right(job, kBlock);
    if (job.real) {
      const F32x4 other = lds.halves.get((right ? 0 : kDim / 4) + quad);
      FORGE_UNROLL
      for (int e = 0; e < kLaneRows; ++e) around.add_half(e, right, other.at[e]);
      if (job.group == 0) lds.decays.set(quad, F32x4{{around.all[0], around.all[1], around.all[2], around.all[3]}});
    }
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      held.keys[t] = Base::product(factors.removal[t], around.before);
      held.queries[t] = Base::product(factors.reading[t], around.before);
      Base::keep(held.keys[t]);
      Base::keep(held.queries[t]);
      keep_schedule();
    }
    turn(factors.removed, around, held.turned);
    turn(factors.values, around, held.turned_values);
  }

  /// Phases 1 and 2.
  FORGE_DEVICE static void begin(const RuleArgs& args, const Chunk& chunk, int head, Lds& lds, Held& held) {
    Inputs inputs;
    Factors factors;
    Around around;
    if (works()) load_inputs(args, chunk, head, inputs);
    barrier();  // the chunk before has been read
    if (works()) {
      store_near(inputs, factors, around, lds);
      const Job job{};
      store_level<4>(factors, around, lds);
      Base::template widen<4>(job, around);
      store_level<8>(factors, around, lds);
      Base::template widen<8>(job, around);
      store_level<16>(factors, around, lds);
      if (job.real && job.group % (kGroups / 2) == 0)
        lds.halves.set((Base::is_right(job, kBlock) ? kDim / 4 : 0) + job.row(0) / 4,
                       F32x4{{around.all[0], around.all[1], around.all[2], around.all[3]}});
    }
    barrier();
    if (works()) hold(factors, around, lds, held);
  }

  /// Stores an element of B or K. The diagonal blocks of -B are pivots.
  FORGE_DEVICE static void set_fed(bool is_removed, int i, int j, float value, Lds& lds) {
    if (!is_removed)
      lds.units.set_half(S::half_at(kFed, i, j), f16_of_f32(value));
    else if (i / kBlock == j / kBlock)
      lds.units.set_word(kPivots * 4 + j * kBlock + i % kBlock, __builtin_bit_cast(u32, -value));
    else
      lds.units.set_half(S::half_at(kSolved, i, j), f16_of_f32(value));
  }
  FORGE_DEVICE static void set_seen(bool is_removed, int i, int j, float value, Lds& lds) {
    lds.units.set_half(S::half_at(is_removed ? kSeen : kSeenValues, i, j), f16_of_f32(value));
  }
  /// B, K, P and Q of pairs of tokens of different groups. A job is a pair of a level's sides and columns of its tile.
  FORGE_DEVICE static void store_products(Lds& lds) {
    constexpr int kAcross = kBlock / T::kN;
    FORGE_LOOP
    for (int product = wave_id(); product < kLevels * 4 * kAcross; product += C::kWaves) {
      const int lane = own_lane(), level = product / (4 * kAcross), column0 = product % kAcross * T::kN;
      const bool is_reading = product / kAcross % 2 != 0, is_removed = product / (2 * kAcross) % 2 == 0;
      const int right = level * kLevelUnits + (is_reading ? kReading : kRemoval) * kSideUnits;
      const int left = level * kLevelUnits + (is_removed ? kRemoved : kValues) * kSideUnits + column0 * kUnitsOfRow;
      float dots[S::kSums] = {};
      FORGE_UNROLL
      for (int slab = 0; slab < kSlabs; ++slab) {
        U32x4 a[T::kAUnits], b[T::kBUnits];
        fetch_a<T>(lds.units, right + slab * (kSquare / 2), a);
        fetch_b<T>(lds.units, left + slab * (kSquare / 2), b);
        FORGE_UNROLL
        for (int half = 0; half < kHalves; ++half) multiply_half<T>(half, a, b, dots);
        keep_schedule();
      }
      FORGE_UNROLL
      for (int e = 0; e < S::kSums; ++e) {
        const auto [i, j, counts] = Base::pair_of(level, T::c_row(lane, e), column0 + T::c_column(lane, e));
        if (!counts) continue;
        if (is_reading)
          set_seen(is_removed, i, j, dots[e], lds);
        else
          set_fed(is_removed, i, j, dots[e], lds);
      }
    }
  }
  /// The same of pairs of tokens of a group.
  FORGE_DEVICE static void add_near(Lds& lds) {
    constexpr int kMatrix = kGroup * kGroup, kPairs = 2 * kGroups * kMatrix;
    const int thread = own_thread();
    FORGE_UNROLL
    for (int pass = 0; pass < ceil_div(kPairs, kThreads); ++pass) {
      const int pair = pass * kThreads + thread;
      if (pair >= kPairs) continue;
      float sum = 0;
      FORGE_UNROLL
      for (int slab = 0; slab < kSlabs; ++slab) sum += lds.near.scalar(slab * kPairs + pair);
      const bool is_removed = pair / kMatrix % 2 == 0;
      const int first = pair / (2 * kMatrix) * kGroup, row = first + pair / kGroup % kGroup,
                column = first + pair % kGroup;
      if (column <= row)
        set_seen(is_removed, row, column, sum, lds);
      else
        set_fed(is_removed, column, row, sum, lds);
    }
  }
  /// Phases 3 and 4.
  FORGE_DEVICE static void finish(const Chunk&, Lds& lds, const Held& held) {
    add_near(lds);
    store_products(lds);
    barrier();
    const Job job{};
    if (!works() || !job.real) return;
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      const int at = job.slab * kSquare + unit_place(job.token(t), job.unit);
      Base::store_part(job, Base::kKeys + at, held.keys[t], lds);
      Base::store_part(job, Base::kQueries + at, held.queries[t], lds);
    }
    FORGE_UNROLL
    for (int e = 0; e < kLaneRows; ++e) {
      FORGE_UNROLL
      for (int w = 0; w < kGroup / 2; ++w) {
        lds.units.set_word(S::half_at(Base::kTurned, job.row(e), job.token(0)) / 2 + w, held.turned[e][w]);
        lds.units.set_word(S::half_at(kTurnedValues, job.row(e), job.token(0)) / 2 + w, held.turned_values[e][w]);
      }
    }
  }
};

}  // namespace forge::gpu
