#pragma once
// Chunks of recurrent_tiles.h where each row of a state has its own decay (gated delta rule of Kimi Linear: arXiv
// 2510.26692, section 3). With a_t,d the decay of row d by token t:
//
//   A_ij = w_i sum over d of k_i,d k_j,d a_j+1,d ... a_i,d    for j < i
//   P_ij =     sum over d of q_i,d k_j,d a_j+1,d ... a_i,d    for j <= i
//
// These are products of matrices if the decays are split at a token m between j and i: those from m on go to i's row,
// those before it to j's. m is the middle of the smallest segment of 8, 16 or 32 tokens that has both; pairs inside
// of 4 tokens are summed up without matrix instructions. So no factor has a decay that is not between j and i, none is
// above 1, and nothing overflows or cancels however strong the decays are. The factors of a segment are those of its
// halves times the decay of a half; e^x is needed for the a_t,d only.
//
//   tokens        0 .. 3   4 .. 7   8 .. 11  12 .. 15   16 ..
//   near          pairs inside of 4 tokens: f32, by the lanes that have the tokens
//   level 0       left     right    left     right      left ..      segments of 8
//   level 1       left     left     right    right      left ..      segments of 16
//   level 2       left     left     left     left       right ..     the chunk
//
// A level has 16 tokens that are left of a middle and 16 that are right of it. Their products are one tile of 16 by 16
// for A and one for P, of which the pairs in the same segment are kept. K and Q of the products with the state have the
// decay since the chunk's beginning, the transposed keys that until its end.
//
// A thread has 4 tokens of a unit, which is 8 rows of the state, and 32 neighbouring lanes have all tokens of 32 rows.
//
//   phase   all waves                                              their place in shared memory
//   1       load keys, queries and decays; squares                 squares: where pivots will be
//   2       normalise; products of near pairs; factors of levels   factors: over keys, queries and turned
//   3       products of the levels: P and A                        seen, solved, pivots
//   4       keys, queries, transposed keys                         keys, queries, turned

#include "kernels/gpu/recurrent_chunk.h"

namespace forge::gpu {

template <class C>
struct RowDecay : StateChunk<C> {
  using Base = StateChunk<C>;
  using R = typename C::Rule;
  using T = typename C::Tile;
  using S = Strip<T>;
  using RuleArgs = typename R::Args;
  using Chunk = typename Base::Chunk;
  using Base::kChunk, Base::kBlock, Base::kThreads, Base::kSlab, Base::kSlabs, Base::kDim;
  using Base::kKeys, Base::kQueries, Base::kTurned, Base::kRegion, Base::kSquare, Base::own_thread, Base::own_lane;
  static_assert(R::kSolves, "only the delta rule has a decay for each row");

  static constexpr int kGroup = 4, kGroups = kChunk / kGroup, kUnitRows = 8;  ///< tokens and rows of a thread
  static constexpr int kJobs = kSlabs * kGroups * kUnitsOfRow;
  static_assert(kGroups * kUnitsOfRow == 32, "32 neighbouring lanes have all tokens of 32 rows");
  static_assert(kJobs <= kThreads, "kWaves must be larger, so that each thread has 4 tokens of a unit at most");
  /// Level n has segments of 8 << n tokens. Its keys have 32 rows a slab, the right ones first, and its queries 16.
  static constexpr int kLevels = 3, kLevelUnits = kRegion + kRegion / 2;
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
  using Rows = float[kGroup][kUnitRows];
  /// What a thread stores when the levels' factors have been read.
  struct Held {
    U32x4 keys[kGroup], queries[kGroup];
    u32 turned[kUnitRows][kGroup / 2];
  };

  /// What a thread works on.
  struct Job {
    u32 thread = static_cast<u32>(own_thread());
    int slab = static_cast<int>(thread / 32), group = static_cast<int>(thread % 32 / kUnitsOfRow);
    int unit = static_cast<int>(thread % kUnitsOfRow);
    bool real = kJobs % kWave == 0 || thread < kJobs;
    FORGE_DEVICE int row(int e) const { return slab * kSlab + S::four_of(unit, e / 4) + e % 4; }
    FORGE_DEVICE int token(int t) const { return group * kGroup + t; }
  };
  /// False for waves whose lanes have no work.
  FORGE_DEVICE static bool works() { return kJobs == kThreads || wave_id() * kWave < kJobs; }

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
    const auto load_to = [&](const float* from, float(&to)[kUnitRows]) {
      FORGE_UNROLL
      for (int half = 0; half < 2; ++half) {
        F32x4 four{};
        if (const int first = job.row(4 * half); job.real && Base::is_row(first))
          four = __builtin_bit_cast(F32x4, load16(from + first));
        FORGE_UNROLL
        for (int e = 0; e < 4; ++e) to[4 * half + e] = four.at[e];
      }
    };
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      const int from = chunk.t0 + (job.token(t) < chunk.count ? job.token(t) : 0);
      load_to(R::key(args, from, head), keys[t]);
      load_to(R::query(args, from, head), queries[t]);
      load_to(R::log_decays(args, from, head), decays[t]);
      keep_schedule();
    }
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      const bool real = job.token(t) < chunk.count;
      FORGE_UNROLL
      for (int e = 0; e < kUnitRows; ++e) {
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
      for (int e = 0; e < kUnitRows; ++e) {
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
      for (int e = 0; e < kUnitRows; ++e) {
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
  /// Products of decays of a thread's rows over the half of a segment that has its tokens: of those before them, those
  /// behind them, and all.
  struct Around {
    float before[kUnitRows], behind[kUnitRows], all[kUnitRows];
  };
  /// Stores the sums of the pairs of a group's tokens over a slab, as a 4 by 4 matrix: P on and below the diagonal, A /
  /// w above it (element [j][i] is that of i and j). Each of four lanes has a row. Then finds the factors.
  FORGE_DEVICE static void store_near(const Rows& keys, const Rows& queries, const Rows& decays, Factors& factors,
                                      Around& around, Lds& lds) {
    const Job job{};
    float sums[kGroup * kGroup] = {};
    FORGE_UNROLL
    for (int e = 0; e < kUnitRows; ++e) {
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
    FORGE_UNROLL
    for (int i = 0; i < 2 * kGroup; ++i) {
      const float first = sums[i], second = sums[2 * kGroup + i];  // `upper ? sums[a] : sums[b]` would be an address
      half[i] = (upper ? second : first) + shuffle_xor<2>(upper ? first : second);
    }
    FORGE_UNROLL
    for (int i = 0; i < kGroup; ++i) {
      const float first = half[i], second = half[kGroup + i];
      row[i] = (odd ? second : first) + shuffle_xor<1>(odd ? first : second);
    }
    if (job.real)
      lds.near.set((job.slab * kGroups + job.group) * kGroup + job.unit, F32x4{{row[0], row[1], row[2], row[3]}});
  }

  FORGE_DEVICE static U32x4 product(const float (&row)[kUnitRows], const float (&decay)[kUnitRows]) {
    U32x4 out;
    FORGE_UNROLL
    for (int w = 0; w < 4; ++w) out.at[w] = f16_pair(row[2 * w] * decay[2 * w], row[2 * w + 1] * decay[2 * w + 1]);
    return out;
  }
  /// Stores the factors of a level whose halves have `Half` tokens. Then `around` is that of the next level.
  template <int Half>
  FORGE_DEVICE static void store_level(const Factors& factors, Around& around, Lds& lds) {
    constexpr int kLevel = Half == 4 ? 0 : Half == 8 ? 1 : 2;
    const Job job{};
    const bool right = (job.token(0) & Half) != 0;
    const int at = kLevel * kLevelUnits + job.slab * kSquare;
    const int queries_at = kLevel * kLevelUnits + kRegion + job.slab * (kSquare / 2);
    const auto each_token = [&](auto&& store) {
      FORGE_UNROLL
      for (int t = 0; t < kGroup; ++t) {
        store(t, job.token(t) / (2 * Half) * Half + job.token(t) % Half);
        keep_schedule();
      }
    };
    if (job.real && right)
      each_token([&](int t, int row) {
        lds.units.set(at + unit_place(row, job.unit), product(factors.right[t], around.before));
        lds.units.set(queries_at + unit_place(row, job.unit), product(factors.queries[t], around.before));
      });
    if (job.real && !right)
      each_token([&](int t, int row) {
        lds.units.set(at + unit_place(kBlock + row, job.unit), product(factors.left[t], around.behind));
      });
    FORGE_UNROLL
    for (int e = 0; e < kUnitRows; ++e) {
      const float other = shuffle_xor<Half / kGroup * kUnitsOfRow>(around.all[e]);
      around.before[e] *= right ? other : 1.0f;
      around.behind[e] *= right ? 1.0f : other;
      around.all[e] *= other;
    }
    keep_schedule();
  }
  FORGE_DEVICE static u32 kept(u32 word) { return static_cast<u32>(opaque(static_cast<int>(word))); }
  /// Without kept() the compiler would keep the factors instead, which take twice the registers.
  FORGE_DEVICE static void hold(const Factors& factors, const Around& around, Held& held) {
    FORGE_UNROLL
    for (int t = 0; t < kGroup; ++t) {
      held.keys[t] = product(factors.right[t], around.before);
      held.queries[t] = product(factors.queries[t], around.before);
      FORGE_UNROLL
      for (int w = 0; w < 4; ++w) {
        held.keys[t].at[w] = kept(held.keys[t].at[w]);
        held.queries[t].at[w] = kept(held.queries[t].at[w]);
      }
      keep_schedule();
    }
    FORGE_UNROLL
    for (int e = 0; e < kUnitRows; ++e) {
      FORGE_UNROLL
      for (int t = 0; t < kGroup; t += 2)
        held.turned[e][t / 2] =
            kept(f16_pair(factors.left[t][e] * around.behind[e], factors.left[t + 1][e] * around.behind[e]));
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
        for (int e = 0; e < kUnitRows; ++e) lds.decays.set(job.row(e), around.all[e]);
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
      const int bits = level + 2, half = 1 << bits;
      FORGE_UNROLL
      for (int e = 0; e < S::kSums; ++e) {
        const int row = T::c_row(lane, e), column = column0 + T::c_column(lane, e);
        if (row >> bits != column >> bits) continue;  // of different segments
        const int i = (row >> bits) * 2 * half + half + (row & (half - 1)),
                  j = (column >> bits) * 2 * half + (column & (half - 1));
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
      lds.units.set(kKeys + at, held.keys[t]);
      lds.units.set(kQueries + at, held.queries[t]);
    }
    FORGE_UNROLL
    for (int e = 0; e < kUnitRows; ++e) {
      const int word = S::half_at(kTurned, job.row(e), job.token(0)) / 2;
      lds.units.set_word(word, held.turned[e][0]);
      lds.units.set_word(word + 1, held.turned[e][1]);
    }
  }
};

}  // namespace forge::gpu
