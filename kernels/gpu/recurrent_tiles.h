#pragma once
// Recurrences of recurrent.h for prefill by matrix instructions: a sequence's tokens in chunks of 32, whose effects on
// each other are products (gated delta rule: arXiv 2412.06464, section 3; Mamba-2: arXiv 2405.21060, section 6). For a
// head, with S the state before the chunk, G_i = sum over j <= i of log decay_j, and w = beta (delta rule) or dt
// (scan):
//
//   A_ij = w_i e^(G_i - G_j) (k_i . k_j) for j < i                       delta rule only
//   U    = (I + A)^-1 w (V - e^G K S)                                    scan: U = w V
//   Y    = kScale (e^(G_i) Q S + P U),  P_ij = e^(G_i - G_j) (q_i . k_j) for j <= i
//   S    = e^(G_last) S + K^T e^(G_last - G) U
//
// No exponent is positive, so nothing overflows. A run's last chunk may have fewer tokens: the rest have k = q = w = 0
// and no decay.
//
// Each wave owns 16 columns of the state, in registers, as a strip (strip_products.h): what it computes for them passes
// through no shared memory. What all columns share does:
//
//   region    slab      row         columns of a row
//   keys      32 rows   token       rows of the state
//   queries   32 rows   token       rows of the state
//   turned    -         state row   tokens               (keys, transposed)
//   seen      -         token i     tokens j             (P)
//   solved    -         token i     tokens j             (see below)
//
//   phase     all waves                                       one wave
//   1         normalise keys and queries, store them          G
//   2         products for P and A; transpose keys
//   3         K S and Q S                                     inverts the diagonal blocks of I + A
//   4         U, Y, S
//
// (I + A)^-1 is not formed: with blocks of 16 tokens, U_1 = I_11 R_1 and U_2 = I_22 (R_2 - A_21 U_1), I_11 and I_22
// being the inverses of the blocks on the diagonal. The region `solved` has I_11, -A_21 and I_22. The inverses are
// found by forward substitution in f32, a column in each lane.
//
// Factors are f16, sums f32, and the state is added up in f32. Over 4000 tokens this gives an nmse of 3e-7 of the delta
// rule's results; a state of two f16 numbers as a factor gave 2.5e-7.

#include "kernels/gpu/recurrent.h"
#include "kernels/gpu/strip_products.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names what StateUpdate needs, without kLanes and kPiece.
struct StateTilesDefaults {
  using Tile = NativeTile;
};

/// A Rule has the struct Args, kSolves (it is a delta rule), kUnit (keys and queries are divided by their lengths),
/// kEpsilon, kScale, kSkips (x is added to the result), key() and query() (addresses of kRows floats), log_decay(),
/// weight(), value() and skip().
template <class C>
struct StateTiles {
  using R = typename C::Rule;
  using T = typename C::Tile;
  using S = Strip<T>;
  static constexpr int kChunk = 32, kBlock = 16, kWaves = C::kWaves, kThreads = kWaves * kWave;
  static constexpr int kBlockColumns = kWaves * S::kColumns, kColumnBlocks = ceil_div(C::kColumns, kBlockColumns);
  static constexpr int kBlocks = C::kSequences * C::kHeads * kColumnBlocks;
  static constexpr int kSlab = 32, kSlabs = ceil_div(C::kRows, kSlab), kDim = kSlabs * kSlab;
  static constexpr int kStateTiles = kDim / S::kTile, kTokenTiles = kChunk / S::kTile, kBlockTiles = kBlock / S::kTile;
  static_assert(T::kLanes == kWave, "the tile is for another wave size");
  static_assert(C::kRows % 4 == 0 && C::kRows <= 128, "kRows must be a multiple of 4 up to 128");

  // Offsets in units of 16 bytes.
  static constexpr int kRegion = kSlabs * kChunk * kUnitsOfRow, kSquare = kChunk * kUnitsOfRow;
  static constexpr int kKeys = 0, kQueries = kRegion, kTurned = 2 * kRegion, kSeen = 3 * kRegion;
  static constexpr int kSolved = kSeen + kSquare;
  static constexpr int kPivots = R::kSolves ? kSolved + kSquare : kSolved;
  static constexpr int kPivotUnits = R::kSolves ? 2 * kBlock * kBlock / 4 : 0;
  /// Of each token: G, w, e^G and e^(G_last - G).
  enum Gate { kTotal, kWeight, kFromStart, kToEnd, kGates };
  struct Lds {
    Shared<U32x4, kPivots + kPivotUnits> units;
    Shared<float, 2 * kGates * kChunk> gates;  ///< of this chunk and of the one before it
  };
  struct Args {
    typename R::Args rule;
    float* state;
    StateInputs inputs;
    float* out;
  };

  /// Tokens t0 .. t0 + count - 1 of the step. gates: the index of the chunk's gates.
  struct Chunk {
    int t0, count, gates;
  };
  using State = float[kStateTiles][S::kSums];
  using Tokens = float[kTokenTiles][S::kSums];  ///< a strip with a row for each token of a chunk

  /// The thread's and the lane's number. What is computed from them is computed again in each chunk, because registers
  /// do not hold all of it.
  FORGE_DEVICE static int own_thread() { return opaque(thread_id()); }
  FORGE_DEVICE static int own_lane() { return opaque(lane_id()); }

  FORGE_DEVICE static float gate(const Lds& lds, const Chunk& chunk, Gate which, int token) {
    return lds.gates.get(chunk.gates + which * kChunk + token);
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
      if (C::kRows == kDim || first < C::kRows) row[i] = __builtin_bit_cast(F32x4, load16(from + first));
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
  FORGE_DEVICE static void store_rows(const Args& args, const Chunk& chunk, int head, Lds& lds) {
    const int thread = own_thread();
    Row keys[kPasses], queries[kPasses];
    FORGE_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      const int token = pass * kTeams + thread / kTeam;
      const int t = chunk.t0 + (token < chunk.count ? token : 0);  // store_row multiplies it by 0
      load_row(R::key(args.rule, t, head), thread, keys[pass]);
      load_row(R::query(args.rule, t, head), thread, queries[pass]);
    }
    FORGE_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      const int token = pass * kTeams + thread / kTeam;
      store_row(keys[pass], chunk, thread, token, kKeys, lds);
      store_row(queries[pass], chunk, thread, token, kQueries, lds);
    }
  }
  /// One wave: the gates of the chunk's tokens. Decays below e^-64 count as that.
  FORGE_DEVICE static void store_gates(const Args& args, const Chunk& chunk, int head, Lds& lds) {
    const int lane = lane_id(), token = lane % kChunk;
    const bool real = token < chunk.count;
    float total = 0, weight = 0;
    if (real) {
      total = max_of(R::log_decay(args.rule, chunk.t0 + token, head), -64.0f);
      weight = R::weight(args.rule, chunk.t0 + token, head);
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
    for (int job = wave_id(); job < (R::kSolves ? 2 : 1) * kParts; job += kWaves) {
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
  /// One wave: the inverses of the diagonal blocks of I + A. Lane 16 b + c has column c of block b's.
  FORGE_DEVICE static void invert(Lds& lds) {
    const int c = lane_id() % kBlock, b = lane_id() / kBlock % 2;
    float x[kBlock];
    FORGE_UNROLL
    for (int i = 0; i < kBlock; ++i) x[i] = i == c ? 1.0f : 0.0f;
    FORGE_UNROLL
    for (int m = 0; m < kBlock - 1; ++m) {
      FORGE_UNROLL
      for (int quad = (m + 1) / 4; quad < kBlock / 4; ++quad) {
        const auto a = __builtin_bit_cast(F32x4, lds.units.get(kPivots + (b * kBlock + m) * (kBlock / 4) + quad));
        FORGE_UNROLL
        for (int e = 0; e < 4; ++e)
          if (quad * 4 + e > m) x[quad * 4 + e] = fma_of(-a.at[e], x[m], x[quad * 4 + e]);
      }
      if (m % 2 == 1) keep_schedule();
    }
    FORGE_UNROLL
    for (int i = 0; i < kBlock; ++i)
      if (lane_id() < 2 * kBlock)
        lds.units.set_half(S::half_at(kSolved, b * kBlock + i, b * kBlock + c), f16_of_f32(x[i]));
  }

  /// Products of the state with the chunk's keys (recalled) and queries (read).
  FORGE_DEVICE static void read_state(const Lds& lds, const State& state, Tokens& recalled, Tokens& read) {
    FORGE_UNROLL
    for (int slab = 0; slab < kSlabs; ++slab) {
      typename S::Factor factors[kHalves];
      FORGE_UNROLL
      for (int half = 0; half < kHalves; ++half) factors[half] = S::factor(state, slab * kHalves + half);
      FORGE_UNROLL
      for (int n = 0; n < kTokenTiles; ++n) {
        const int at = slab * kSquare + n * S::kTile * kUnitsOfRow;
        const auto add = [&](int region, float(&sums)[S::kSums]) {
          U32x4 units[S::kUnits];
          S::fetch(lds.units, region + at, units);
          FORGE_UNROLL
          for (int half = 0; half < kHalves; ++half) S::multiply(factors[half], units, half, sums);
          keep_schedule();  // otherwise the compiler hoists the loads of all slabs and spills
        };
        if constexpr (R::kSolves) add(kKeys, recalled[n]);
        add(kQueries, read[n]);
      }
    }
  }
  /// sums += block `to` of 16 tokens of a square region, times a factor that has the tokens of block `from`.
  FORGE_DEVICE static void add_block(const Lds& lds, int region, int to, int from, const typename S::Factor& factor,
                                     Tokens& sums) {
    FORGE_UNROLL
    for (int n = to * kBlockTiles; n < (to + 1) * kBlockTiles; ++n) {
      U32x4 units[S::kUnits];
      S::fetch(lds.units, region + n * S::kTile * kUnitsOfRow, units);
      S::multiply(factor, units, from, sums[n]);
    }
  }
  /// values: V on entry, U on return.
  FORGE_DEVICE static void solve(const Lds& lds, const Chunk& chunk, float raise, const Tokens& recalled,
                                 Tokens& values) {
    S::each(own_lane(), values, [&](int n, int i, int token, float& value) {
      value *= raise;
      if constexpr (R::kSolves) value = fma_of(-gate(lds, chunk, kFromStart, token), recalled[n][i], value);
      value *= gate(lds, chunk, kWeight, token);
    });
    if constexpr (R::kSolves) {
      Tokens solved = {};
      add_block(lds, kSolved, 0, 0, S::factor(values, 0), solved);
      add_block(lds, kSolved, 1, 0, S::factor(solved, 0), values);
      add_block(lds, kSolved, 1, 1, S::factor(values, 1), solved);
      S::each(0, values, [&](int n, int i, int, float& value) { value = solved[n][i]; });
    }
  }
  /// read: Q S on entry, e^G Q S + P U on return.
  FORGE_DEVICE static void add_seen(const Lds& lds, const Chunk& chunk, const Tokens& values, Tokens& read) {
    S::each(own_lane(), read, [&](int, int, int token, float& sum) { sum *= gate(lds, chunk, kFromStart, token); });
    const auto first = S::factor(values, 0), second = S::factor(values, 1);
    add_block(lds, kSeen, 0, 0, first, read);
    add_block(lds, kSeen, 1, 0, first, read);
    add_block(lds, kSeen, 1, 1, second, read);
  }
  FORGE_DEVICE static void update(const Lds& lds, const Chunk& chunk, Tokens& values, State& state) {
    S::each(own_lane(), values, [&](int, int, int token, float& value) { value *= gate(lds, chunk, kToEnd, token); });
    const float keep = gate(lds, chunk, kFromStart, kChunk - 1);
    const typename S::Factor factors[kHalves] = {S::factor(values, 0), S::factor(values, 1)};
    FORGE_UNROLL
    for (int d = 0; d < kStateTiles; ++d) {
      FORGE_UNROLL
      for (int i = 0; i < S::kSums; ++i) state[d][i] *= keep;
      U32x4 units[S::kUnits];
      S::fetch(lds.units, kTurned + d * S::kTile * kUnitsOfRow, units);
      FORGE_UNROLL
      for (int half = 0; half < kHalves; ++half) S::multiply(factors[half], units, half, state[d]);
      if (d % 2 == 1) keep_schedule();
    }
  }

  /// The state is 2^4 times as large in registers, so that fewer of its elements are subnormal in f16, which gfx90a
  /// takes for zero. Where it or a chunk's inputs would be above kMost, a wave lowers its power of two: f16 ends at
  /// 2^16, and sums of a chunk need room.
  static constexpr float kRaise = 16, kMost = 4096;
  FORGE_DEVICE static void keep_in_range(const Lds& lds, const Chunk& chunk, Tokens& values, State& state,
                                         float& raise) {
    float most = 0;
    S::each(own_lane(), values, [&](int, int, int token, float& value) {
      most = max_of(most, abs_of(value) * max_of(gate(lds, chunk, kWeight, token), 1.0f));
    });
    most *= raise;
    S::each(0, state, [&](int, int, int, float& sum) { most = max_of(most, abs_of(sum)); });
    most = max_lanes<kWave>(most);
    if (!uniform(most > kMost)) return;
    const float lower = exp2_of(-round_of(log2_of(most / kMost) + 0.5f));
    raise *= lower;
    S::each(0, state, [&](int, int, int, float& sum) { sum *= lower; });
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int job = block_id() / kColumnBlocks, head = job % C::kHeads, s = job / C::kHeads;
    const int column0 = block_id() % kColumnBlocks * kBlockColumns + wave_id() * S::kColumns;
    release_consumers();
    if (idle_sequence(args.inputs, s)) return;
    const Run run = run_of<C::kTokensTotal>(args.inputs, s);
    if (run.begin == run.end) return;
    const int from = uniform(load(args.inputs.read + s)), to = uniform(load(args.inputs.write + s));
    const auto is_real = [&](int lane, int i) { return column0 + S::column(lane, i) < C::kColumns; };
    const auto column_of = [&](int lane, int i) {
      return is_real(lane, i) ? column0 + S::column(lane, i) : C::kColumns - 1;
    };
    const auto place_of = [&](int slot, int lane, int i, int row) {
      return static_cast<u64>(slot) * C::kSlotFloats + (head * C::kColumns + column_of(lane, i)) * C::kRows + row;
    };
    const auto is_row = [&](int row) { return C::kRows == kDim || row < C::kRows; };
    State state = {};
    float raise = kRaise;
    int lane = own_lane();
    if (from >= 0)
      S::each(lane, state, [&](int, int i, int row, float& sum) {
        if (is_row(row)) sum = kRaise * load(args.state + place_of(from, lane, i, row));
      });
    // The blocks above the diagonal are never written again.
    for (int i = thread_id(); i < kPivots - kSeen; i += kThreads) lds.units.set(kSeen + i, U32x4{});
    wait_for_producer();
    FORGE_LOOP
    for (int t0 = run.begin; t0 < run.end; t0 += kChunk) {
      const Chunk chunk{t0, run.end - t0 < kChunk ? run.end - t0 : kChunk,
                        (t0 - run.begin) / kChunk % 2 * kGates * kChunk};
      store_rows(args, chunk, head, lds);
      if (wave_id() == kWaves - 1) store_gates(args, chunk, head, lds);
      barrier();
      Tokens values, recalled = {}, read = {};
      lane = own_lane();
      S::each(lane, values, [&](int, int i, int token, float& value) {
        const int real = token < chunk.count ? token : chunk.count - 1;
        value = R::value(args.rule, t0 + real, head, column_of(lane, i));
      });
      keep_in_range(lds, chunk, values, state, raise);
      store_products(chunk, lds);
      store_turned(lds);
      if constexpr (!R::kSolves) read_state(lds, state, recalled, read);
      barrier();
      if constexpr (R::kSolves) {
        if (wave_id() == 0) invert(lds);
        read_state(lds, state, recalled, read);
        barrier();
      }
      Tokens inputs;
      if constexpr (R::kSkips) S::each(0, inputs, [&](int n, int i, int, float& input) { input = values[n][i]; });
      solve(lds, chunk, raise, recalled, values);
      add_seen(lds, chunk, values, read);
      lane = own_lane();
      const float lowered = R::kScale / raise;
      S::each(lane, read, [&](int n, int i, int token, float& sum) {
        float y = sum * lowered;
        if constexpr (R::kSkips) y = fma_of(R::skip(args.rule, head), inputs[n][i], y);
        float* out = args.out + static_cast<u64>(t0 + token) * C::kOutFloats + head * C::kColumns;
        store(out + column0 + S::column(lane, i), y, token < chunk.count && is_real(lane, i));
      });
      keep_schedule();
      update(lds, chunk, values, state);
    }
    lane = own_lane();
    const float put_back = 1 / raise;
    S::each(lane, state, [&](int, int i, int row, float& sum) {
      if (is_real(lane, i) && is_row(row)) args.state[place_of(to, lane, i, row)] = sum * put_back;
    });
  }
};

/// DeltaRule with one decay a head. P is the same.
template <class P>
struct DeltaTiles {
  using Args = typename DeltaRule<P>::Args;
  static constexpr bool kSolves = true, kSkips = false, kUnit = P::kEpsilon > 0;
  static constexpr float kEpsilon = P::kEpsilon, kScale = P::kScale;
  static_assert(!P::kDecayEachRow, "decays are of heads");

  FORGE_DEVICE static int key_at(int head) {
    return (P::kInterleaved ? head % P::kKeyHeads : head / (P::kHeads / P::kKeyHeads)) * P::kKeyDim;
  }
  FORGE_DEVICE static const float* key(const Args& args, int t, int head) {
    return args.k + static_cast<u64>(t) * P::kKFloats + key_at(head);
  }
  FORGE_DEVICE static const float* query(const Args& args, int t, int head) {
    return args.q + static_cast<u64>(t) * P::kQFloats + key_at(head);
  }
  FORGE_DEVICE static float value(const Args& args, int t, int head, int column) {
    return row_element<P::kVFloats>(args.v, t, head * P::kValueDim + column);
  }
  FORGE_DEVICE static float log_decay(const Args& args, int t, int head) {
    return row_element<P::kDecayFloats>(args.decay, t, head);
  }
  FORGE_DEVICE static float weight(const Args& args, int t, int head) {
    return row_element<P::kBetaFloats>(args.beta, t, head);
  }
};

/// ScanHeads with one rate a head. P is the same.
template <class P>
struct ScanTiles {
  using Args = typename ScanHeads<P>::Args;
  static constexpr bool kSolves = false, kSkips = true, kUnit = false;
  static constexpr float kEpsilon = 0, kScale = 1;
  static_assert(!P::kEachState, "rates are of heads");

  FORGE_DEVICE static int group_at(int head) { return head / (P::kHeads / P::kGroups) * P::kStateDim; }
  FORGE_DEVICE static const float* key(const Args& args, int t, int head) {
    return args.b + static_cast<u64>(t) * P::kBFloats + group_at(head);
  }
  FORGE_DEVICE static const float* query(const Args& args, int t, int head) {
    return args.c + static_cast<u64>(t) * P::kCFloats + group_at(head);
  }
  FORGE_DEVICE static float value(const Args& args, int t, int head, int column) {
    return row_element<P::kXFloats>(args.x, t, head * P::kHeadDim + column);
  }
  FORGE_DEVICE static float log_decay(const Args& args, int t, int head) {
    return weight(args, t, head) * load(args.a + head);
  }
  FORGE_DEVICE static float weight(const Args& args, int t, int head) {
    return row_element<P::kDtFloats>(args.dt, t, head);
  }
  FORGE_DEVICE static float skip(const Args& args, int head) { return load(args.d + head); }
};

}  // namespace forge::gpu
