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
// If each row of the state has its own decay, so has each row of K and Q (recurrent_row_decay.h; one decay of all rows:
// recurrent_head_decay.h). RWKV-7 has rows with their own decays too, and other keys for values than for what is read
// by keys (recurrent_two_keys.h).
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
//   first     all regions but `solved`, see the headers of decays
//   then      K S and Q S                                     inverts the diagonal blocks of I + A
//   last      U, Y, S
//
// (I + A)^-1 is not formed: with blocks of 16 tokens, U_1 = I_11 R_1 and U_2 = I_22 (R_2 - A_21 U_1), I_11 and I_22
// being the inverses of the blocks on the diagonal. The region `solved` has I_11, -A_21 and I_22. The inverses are
// found by forward substitution in f32, a column in each lane.
//
// Factors are f16, sums f32, and the state is added up in f32. Over 4000 tokens this gives an nmse of 3e-7 of the delta
// rule's results; a state of two f16 numbers as a factor gave 2.5e-7.

#include "kernels/gpu/recurrent_head_decay.h"
#include "kernels/gpu/recurrent_row_decay.h"
#include "kernels/gpu/recurrent_two_keys.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names what StateUpdate needs, without kLanes and kPiece.
struct StateTilesDefaults {
  using Tile = NativeTile;
};

/// A Rule has the struct Args, Decay (its kind of chunk), kSolves (it is a delta rule), kScale, kSkips (x is added to
/// the result), value() and skip(). For its kind of chunk: kUnit (keys and queries are divided by their lengths),
/// kEpsilon, key() and query(), weight(), log_decay() or log_decays(); TwoKeys: removal(), removed() and decays().
/// Those of vectors return the address of kRows floats.
template <class C>
struct StateTiles {
  using R = typename C::Rule;
  using T = typename C::Tile;
  using S = Strip<T>;
  using D = typename R::template Decay<C>;
  using Lds = typename D::Lds;
  using Chunk = typename D::Chunk;
  static constexpr int kChunk = D::kChunk, kBlock = D::kBlock, kThreads = D::kThreads, kWaves = C::kWaves;
  static constexpr int kBlockColumns = kWaves * S::kColumns, kColumnBlocks = ceil_div(C::kColumns, kBlockColumns);
  static constexpr int kBlocks = C::kSequences * C::kHeads * kColumnBlocks;
  static constexpr int kSlabs = D::kSlabs, kSquare = D::kSquare, kSolved = D::kSolved, kPivots = D::kPivots;
  static constexpr int kStateTiles = D::kDim / S::kTile, kTokenTiles = kChunk / S::kTile;
  static constexpr int kBlockTiles = kBlock / S::kTile;
  static_assert(T::kLanes == kWave, "the tile is for another wave size");

  struct Args {
    typename R::Args rule;
    float* state;
    StateInputs inputs;
    float* out;
  };
  using State = float[kStateTiles][S::kSums];
  using Tokens = float[kTokenTiles][S::kSums];  ///< a strip with a row for each token of a chunk
  using Factors = typename S::Factor[kHalves];  ///< such a strip

  /// Registers hold the addresses that invert() computes over all chunks where they have room for them.
  FORGE_DEVICE static int lane_of_inverse() { return D::kKeepsAddresses ? lane_id() : D::own_lane(); }
  /// One wave: the inverses of the diagonal blocks of I + A. Lane 16 b + c has column c of block b's.
  FORGE_DEVICE static void invert(Lds& lds) {
    const int c = lane_of_inverse() % kBlock, b = lane_of_inverse() / kBlock % 2;
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
      Factors factors;
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
        if constexpr (R::kSolves) add(D::kKeys, recalled[n]);
        add(D::kQueries, read[n]);
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
  /// sums += a square region, whose blocks above the diagonal are zero, times the strip of two factors.
  FORGE_DEVICE static void add_lower(const Lds& lds, int region, const Factors& factors, Tokens& sums) {
    add_block(lds, region, 0, 0, factors[0], sums);
    add_block(lds, region, 1, 0, factors[0], sums);
    add_block(lds, region, 1, 1, factors[1], sums);
  }
  /// values: V on entry, U on return; with two keys s. written: then V.
  FORGE_DEVICE static void solve(const Lds& lds, const Chunk& chunk, float raise, const Tokens& recalled,
                                 Tokens& values, Factors& written) {
    S::each(D::own_lane(), values, [&](int n, int i, int token, float& value) {
      value *= raise;
      if constexpr (R::kSolves && !D::kTwoKeys)
        value = fma_of(-D::from_start(lds, chunk, token), recalled[n][i], value);
      value *= D::weight(lds, chunk, token);
    });
    if constexpr (D::kTwoKeys) {
      FORGE_UNROLL
      for (int half = 0; half < kHalves; ++half) written[half] = S::factor(values, half);
      S::each(0, values, [&](int n, int i, int, float& value) { value = recalled[n][i]; });
      add_lower(lds, D::kFed, written, values);
    }
    if constexpr (R::kSolves) {
      Tokens solved = {};
      add_block(lds, kSolved, 0, 0, S::factor(values, 0), solved);
      add_block(lds, kSolved, 1, 0, S::factor(solved, 0), values);
      add_block(lds, kSolved, 1, 1, S::factor(values, 1), solved);
      S::each(0, values, [&](int n, int i, int, float& value) { value = solved[n][i]; });
    }
  }
  /// read: Q S on entry, e^G Q S + P U on return.
  FORGE_DEVICE static void add_seen(const Lds& lds, const Chunk& chunk, const Tokens& values, const Factors& written,
                                    Tokens& read) {
    S::each(D::own_lane(), read, [&](int, int, int token, float& sum) { sum *= D::from_start(lds, chunk, token); });
    add_lower(lds, D::kSeen, {S::factor(values, 0), S::factor(values, 1)}, read);
    if constexpr (D::kTwoKeys) add_lower(lds, D::kSeenValues, written, read);
  }
  /// sums, a tile of the state, += rows of a region of transposed keys times the strip of two factors.
  FORGE_DEVICE static void add_turned(const Lds& lds, int first, const Factors& factors, float (&sums)[S::kSums]) {
    U32x4 units[S::kUnits];
    S::fetch(lds.units, first, units);
    FORGE_UNROLL
    for (int half = 0; half < kHalves; ++half) S::multiply(factors[half], units, half, sums);
  }
  FORGE_DEVICE static void update(const Lds& lds, const Chunk& chunk, const Factors& written, Tokens& values,
                                  State& state) {
    S::each(D::own_lane(), values, [&](int, int, int token, float& value) { value *= D::to_end(lds, chunk, token); });
    const auto decay = D::decay_of_state(lds, chunk);
    const Factors factors = {S::factor(values, 0), S::factor(values, 1)};
    FORGE_UNROLL
    for (int d = 0; d < kStateTiles; ++d) {
      FORGE_UNROLL
      for (int i = 0; i < S::kSums; ++i) state[d][i] *= decay(d * S::kTile, i);
      add_turned(lds, D::kTurned + d * S::kTile * kUnitsOfRow, factors, state[d]);
      if constexpr (D::kTwoKeys) add_turned(lds, D::kTurnedValues + d * S::kTile * kUnitsOfRow, written, state[d]);
      if (d % 2 == 1) keep_schedule();
    }
  }

  /// The state is 2^4 times as large in registers, so that fewer of its elements are subnormal in f16, which gfx90a
  /// takes for zero. Where it or a chunk's inputs would be above D::kMost, a wave lowers its power of two: f16 ends at
  /// 2^16, and sums of a chunk need room.
  static constexpr float kRaise = 16;
  FORGE_DEVICE static void keep_in_range(const Lds& lds, const Chunk& chunk, Tokens& values, State& state,
                                         float& raise) {
    float most = 0;
    S::each(D::own_lane(), values, [&](int, int, int token, float& value) {
      most = max_of(most, abs_of(value) * max_of(D::weight(lds, chunk, token), 1.0f));
    });
    most *= raise;
    S::each(0, state, [&](int, int, int, float& sum) { most = max_of(most, abs_of(sum)); });
    most = max_lanes<kWave>(most);
    if (!uniform(most > D::kMost)) return;
    const float lower = exp2_of(-round_of(log2_of(most / D::kMost) + 0.5f));
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
    State state = {};
    float raise = kRaise;
    int lane = D::own_lane();
    if (from >= 0)
      S::each(lane, state, [&](int, int i, int row, float& sum) {
        if (D::is_row(row)) sum = kRaise * load(args.state + place_of(from, lane, i, row));
      });
    // The blocks above the diagonal are never written again.
    for (int i = thread_id(); i < D::kZeroed; i += kThreads) lds.units.set(D::kSeen + i, U32x4{});
    barrier();
    wait_for_producer();
    FORGE_LOOP
    for (int t0 = run.begin; t0 < run.end; t0 += kChunk) {
      const Chunk chunk{t0, run.end - t0 < kChunk ? run.end - t0 : kChunk,
                        (t0 - run.begin) / kChunk % 2 * D::kGates * kChunk};
      typename D::Held held;
      D::begin(args.rule, chunk, head, lds, held);
      Tokens values, recalled = {}, read = {};
      lane = D::own_lane();
      S::each(lane, values, [&](int, int i, int token, float& value) {
        const int real = token < chunk.count ? token : chunk.count - 1;
        value = R::value(args.rule, t0 + real, head, column_of(lane, i));
      });
      keep_in_range(lds, chunk, values, state, raise);
      D::finish(chunk, lds, held);
      if constexpr (!R::kSolves) read_state(lds, state, recalled, read);
      barrier();
      if constexpr (R::kSolves) {
        if (wave_id() == 0) invert(lds);
        read_state(lds, state, recalled, read);
        barrier();
      }
      Tokens inputs;
      if constexpr (R::kSkips) S::each(0, inputs, [&](int n, int i, int, float& input) { input = values[n][i]; });
      Factors written;  // with two keys
      solve(lds, chunk, raise, recalled, values, written);
      add_seen(lds, chunk, values, written, read);
      lane = D::own_lane();
      const float lowered = R::kScale / raise;
      S::each(lane, read, [&](int n, int i, int token, float& sum) {
        float y = sum * lowered;
        if constexpr (R::kSkips) y = fma_of(R::skip(args.rule, head), inputs[n][i], y);
        float* out = args.out + static_cast<u64>(t0 + token) * C::kOutFloats + head * C::kColumns;
        store(out + column0 + S::column(lane, i), y, token < chunk.count && is_real(lane, i));
      });
      keep_schedule();
      update(lds, chunk, written, values, state);
    }
    lane = D::own_lane();
    const float put_back = 1 / raise;
    S::each(lane, state, [&](int, int i, int row, float& sum) {
      if (is_real(lane, i) && D::is_row(row)) args.state[place_of(to, lane, i, row)] = sum * put_back;
    });
  }
};

/// The kind of chunk of the gated delta rule.
template <class C, bool EachRow>
struct DecayOf {
  using Type = HeadDecay<C>;
};
template <class C>
struct DecayOf<C, true> {
  using Type = RowDecay<C>;
};

/// DeltaRule. P is the same.
template <class P>
struct DeltaTiles {
  using Args = typename DeltaRule<P>::Args;
  static constexpr bool kSolves = true, kSkips = false, kUnit = P::kEpsilon > 0;
  static constexpr float kEpsilon = P::kEpsilon, kScale = P::kScale;
  template <class C>
  using Decay = typename DecayOf<C, P::kDecayEachRow>::Type;

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
  FORGE_DEVICE static const float* log_decays(const Args& args, int t, int head) {
    return args.decay + static_cast<u64>(t) * P::kDecayFloats + head * P::kKeyDim;
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
  template <class C>
  using Decay = HeadDecay<C>;
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

/// Rwkv7. P is the same.
template <class P>
struct Rwkv7Tiles {
  using Args = typename Rwkv7<P>::Args;
  static constexpr bool kSolves = true, kSkips = false;
  static constexpr float kScale = 1;
  template <class C>
  using Decay = TwoKeys<C>;

  template <int Floats>
  FORGE_DEVICE static const float* row(const float* x, int t, int head) {
    return x + static_cast<u64>(t) * Floats + head * P::kHeadDim;
  }
  FORGE_DEVICE static const float* key(const Args& args, int t, int head) { return row<P::kKFloats>(args.k, t, head); }
  FORGE_DEVICE static const float* query(const Args& args, int t, int head) {
    return row<P::kRFloats>(args.r, t, head);
  }
  FORGE_DEVICE static const float* decays(const Args& args, int t, int head) {
    return row<P::kWFloats>(args.w, t, head);
  }
  FORGE_DEVICE static const float* removal(const Args& args, int t, int head) {
    return row<P::kAFloats>(args.a, t, head);
  }
  FORGE_DEVICE static const float* removed(const Args& args, int t, int head) {
    return row<P::kBFloats>(args.b, t, head);
  }
  FORGE_DEVICE static float value(const Args& args, int t, int head, int column) {
    return row_element<P::kVFloats>(args.v, t, head * P::kHeadDim + column);
  }
};

}  // namespace forge::gpu
