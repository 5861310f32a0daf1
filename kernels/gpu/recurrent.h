#pragma once
// Recurrences with a matrix state a head: the gated delta rule (arXiv 2412.06464, and 2510.26692 with a decay for each
// row), Mamba's selective scan (arXiv 2312.00752, 2405.21060) and RWKV-7 (arXiv 2503.14456). StateUpdate is the kernel;
// a Rule says what a token does to a column of the state.
//
// Columns do not depend on each other. A team of kLanes lanes owns a column and keeps its rows in registers over all
// tokens of a sequence, four neighbouring rows at a time (kLanes 2, kRows 16):
//
//   row     0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 15
//   lane    0         1         0           1
//
// In memory a column's rows are neighbours, f32 [slot][head][column][row], so a team reads and writes whole lines. What
// the columns of a block share (a token's keys, queries, decays) is staged in shared memory, kPiece tokens at a time.
// The old state is read before the producer's results are waited for.

#include "kernels/gpu/state_runs.h"

namespace forge::gpu {

/// C has the type Rule, kHeads, kColumns and kRows (of a head's state), kLanes, kPiece, kWaves, kSequences and
/// kTokensTotal (that memory has), kSlotFloats (from one slot to the next) and kOutFloats (row stride of out).
///
/// A Rule has the struct Args, kVectors (vectors of kRows floats of a token and head), kPerColumn (floats of a token
/// and column), kScalars (floats of a token and head), kLengths (the first kLengths vectors are divided by their
/// lengths), vector(), per_column() and scalar(), which compute these inputs, the struct Column, which a lane keeps
/// over all tokens, and step(), which updates a lane's rows and returns its part of the column's result.
template <class C>
struct StateUpdate {
  using R = typename C::Rule;
  static constexpr int kThreads = C::kWaves * kWave, kBlockColumns = kThreads / C::kLanes;
  static constexpr int kColumnBlocks = ceil_div(C::kColumns, kBlockColumns);
  static constexpr int kBlocks = C::kSequences * C::kHeads * kColumnBlocks;
  static constexpr int kQuads = C::kRows / (4 * C::kLanes);  ///< of a lane
  static_assert(C::kRows % (4 * C::kLanes) == 0 && kQuads > 0, "kRows must be a multiple of 4 * kLanes");
  static_assert(kWave % C::kLanes == 0, "a team is inside a wave");
  static constexpr int kVectorQuads = R::kVectors * C::kRows / 4;
  struct Lds {
    Shared<U32x4, C::kPiece * kVectorQuads> vectors;
    Shared<float, at_least_one(C::kPiece* R::kPerColumn* kBlockColumns)> columns;
    Shared<float, at_least_one(C::kPiece* R::kScalars)> scalars;
    Shared<float, at_least_one(C::kPiece* R::kLengths)> lengths;
  };
  struct Args {
    typename R::Args rule;
    float* state;
    StateInputs inputs;
    float* out;
  };

  /// One token's inputs, as the lane's step() reads them.
  struct Staged {
    const Lds& lds;
    int token, column, part;
    /// Rows (quad * kLanes + part) * 4 and the three behind it of vector `v`.
    FORGE_DEVICE F32x4 rows(int v, int quad) const {
      const int at = token * kVectorQuads + v * (C::kRows / 4) + quad * C::kLanes + part;
      return __builtin_bit_cast(F32x4, lds.vectors.get(at));
    }
    FORGE_DEVICE float per_column(int n) const {
      return lds.columns.get((token * R::kPerColumn + n) * kBlockColumns + column);
    }
    FORGE_DEVICE float scalar(int n) const { return lds.scalars.get(token * R::kScalars + n); }
    /// 1 / the length of vector v.
    FORGE_DEVICE float inverse_length(int v) const { return lds.lengths.get(token * R::kLengths + v); }
  };

  /// Stages `count` tokens from t0 on. A wave takes one vector of one token at a time. All lanes of the block.
  FORGE_DEVICE static void stage(const typename R::Args& args, int head, int column0, int t0, int count, Lds& lds) {
    FORGE_LOOP
    for (int job = wave_id(); job < count * R::kVectors; job += C::kWaves) {
      const int token = job / R::kVectors, v = job % R::kVectors;
      float squares = 0;
      FORGE_UNROLL
      for (int i = 0; i < ceil_div(C::kRows, kWave); ++i) {
        const int row = i * kWave + lane_id();
        if (row < C::kRows) {
          const float value = R::vector(args, t0 + token, head, v, row);
          lds.vectors.set_word(job * C::kRows + row, __builtin_bit_cast(u32, value));
          squares = fma_of(value, value, squares);
        }
      }
      if constexpr (R::kLengths > 0) {
        const float length = sqrt_of(sum_lanes<kWave>(squares) + R::kEpsilon);
        if (v < R::kLengths && lane_id() == 0) lds.lengths.set(token * R::kLengths + v, 1.0f / length);
      }
    }
    for (int i = thread_id(); i < count * R::kPerColumn * kBlockColumns; i += kThreads) {
      const int column = column0 + i % kBlockColumns, n = i / kBlockColumns;
      const int c = column < C::kColumns ? column : C::kColumns - 1;
      lds.columns.set(i, R::per_column(args, t0 + n / R::kPerColumn, head, c, n % R::kPerColumn));
    }
    if constexpr (R::kScalars > 0) {
      for (int i = thread_id(); i < count * R::kScalars; i += kThreads)
        lds.scalars.set(i, R::scalar(args, t0 + i / R::kScalars, head, i % R::kScalars));
    }
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int job = block_id() / kColumnBlocks, head = job % C::kHeads, s = job / C::kHeads;
    const int column0 = block_id() % kColumnBlocks * kBlockColumns;
    const int own = thread_id() / C::kLanes, part = thread_id() % C::kLanes;
    const bool real = column0 + own < C::kColumns;
    const int column = real ? column0 + own : C::kColumns - 1;
    release_consumers();
    if (idle_sequence(args.inputs, s)) return;
    const Run run = run_of<C::kTokensTotal>(args.inputs, s);
    if (run.begin == run.end) return;
    const int from = uniform(load(args.inputs.read + s)), to = uniform(load(args.inputs.write + s));
    const int at = (head * C::kColumns + column) * C::kRows + 4 * part;
    float rows[kQuads * 4] = {};
    if (from >= 0) {
      const float* state = args.state + static_cast<u64>(from) * C::kSlotFloats + at;
      FORGE_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        const auto four = __builtin_bit_cast(F32x4, load16(state + q * 4 * C::kLanes));
        FORGE_UNROLL
        for (int i = 0; i < 4; ++i) rows[q * 4 + i] = four.at[i];
      }
    }
    typename R::template Column<C> kept(args.rule, head, column, part);
    wait_for_producer();
    FORGE_LOOP
    for (int t0 = run.begin; t0 < run.end; t0 += C::kPiece) {
      const int count = run.end - t0 < C::kPiece ? run.end - t0 : C::kPiece;
      if (t0 != run.begin) barrier();
      stage(args.rule, head, column0, t0, count, lds);
      barrier();
      FORGE_LOOP
      for (int i = 0; i < count; ++i) {
        const Staged token{lds, i, own, part};
        const float y = sum_lanes<C::kLanes>(R::template step<C>(kept, token, rows));
        const float result = R::finish(kept, token, y);
        store(args.out + static_cast<u64>(t0 + i) * C::kOutFloats + head * C::kColumns + column, result,
              real && part == 0);
      }
    }
    float* state = args.state + static_cast<u64>(to) * C::kSlotFloats + at;
    FORGE_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      const F32x4 four{{rows[q * 4], rows[q * 4 + 1], rows[q * 4 + 2], rows[q * 4 + 3]}};
      if (real) *reinterpret_cast<F32x4*>(state + q * 4 * C::kLanes) = four;
    }
  }
};

/// An element of row t of a matrix with rows `Floats` apart.
template <int Floats>
FORGE_DEVICE float row_element(const float* x, int t, int column) {
  return load(x + static_cast<u64>(t) * Floats + column);
}

/// Nothing that a lane keeps over all tokens.
template <class C>
struct NoColumn {
  template <class Args>
  FORGE_DEVICE NoColumn(const Args&, int, int, int) {}
};

/// S = decay S;  u = beta (v - S^T k);  S = S + k u^T;  y = kScale * S^T q. P has kKeyHeads, kHeads, kKeyDim,
/// kValueDim, kInterleaved, kDecayEachRow, kScale, kEpsilon (0: q and k are not divided by their lengths), and the row
/// strides kQFloats, kKFloats, kVFloats, kDecayFloats and kBetaFloats.
template <class P>
struct DeltaRule {
  struct Args {
    const float *q, *k, *v;
    const float* decay;  ///< logarithms
    const float* beta;
  };
  static constexpr bool kEach = P::kDecayEachRow, kUnit = P::kEpsilon > 0;
  static constexpr int kVectors = kEach ? 3 : 2, kPerColumn = 1, kScalars = kEach ? 1 : 2, kLengths = kUnit ? 2 : 0;
  static constexpr float kEpsilon = P::kEpsilon;
  enum { kK, kQ, kDecay };
  enum { kBeta, kDecayOfHead };
  template <class C>
  using Column = NoColumn<C>;

  FORGE_DEVICE static float vector(const Args& args, int t, int head, int v, int row) {
    const int key = (P::kInterleaved ? head % P::kKeyHeads : head / (P::kHeads / P::kKeyHeads)) * P::kKeyDim + row;
    if (kEach && v == kDecay) return exp_of(row_element<P::kDecayFloats>(args.decay, t, head * P::kKeyDim + row));
    return v == kK ? row_element<P::kKFloats>(args.k, t, key) : row_element<P::kQFloats>(args.q, t, key);
  }
  FORGE_DEVICE static float per_column(const Args& args, int t, int head, int column, int) {
    return row_element<P::kVFloats>(args.v, t, head * P::kValueDim + column);
  }
  FORGE_DEVICE static float scalar(const Args& args, int t, int head, int n) {
    return n == kBeta ? row_element<P::kBetaFloats>(args.beta, t, head)
                      : exp_of(row_element<P::kDecayFloats>(args.decay, t, head));
  }
  template <class C, class Staged, int Rows>
  FORGE_DEVICE static float step(const NoColumn<C>&, const Staged& token, float (&s)[Rows]) {
    F32x4 k[Rows / 4];
    const float decay = kEach ? 1.0f : token.scalar(kDecayOfHead);
    float recalled = 0, y = 0;
    FORGE_UNROLL
    for (int i = 0; i < Rows; ++i) {
      if (i % 4 == 0) k[i / 4] = token.rows(kK, i / 4);
      s[i] *= kEach ? token.rows(kDecay, i / 4).at[i % 4] : decay;
      recalled = fma_of(s[i], k[i / 4].at[i % 4], recalled);
    }
    const float inverse = kUnit ? token.inverse_length(kK) : 1.0f;
    recalled = sum_lanes<C::kLanes>(recalled) * inverse;
    const float u = token.scalar(kBeta) * (token.per_column(0) - recalled) * inverse;
    FORGE_UNROLL
    for (int i = 0; i < Rows; ++i) {
      s[i] = fma_of(k[i / 4].at[i % 4], u, s[i]);
      y = fma_of(s[i], token.rows(kQ, i / 4).at[i % 4], y);
    }
    return y;
  }
  template <class Kept, class Staged>
  FORGE_DEVICE static float finish(const Kept&, const Staged& token, float y) {
    return y * (kUnit ? P::kScale * token.inverse_length(kQ) : P::kScale);
  }
};

/// Mamba-2: h = e^(dt a) h + dt x b;  y = h^T c + d x. P has kHeads, kGroups, kHeadDim, kStateDim, kEachState (a is
/// [heads][state_dim], else [heads]), and the row strides kXFloats, kDtFloats, kBFloats and kCFloats.
template <class P>
struct ScanHeads {
  struct Args {
    const float *x, *dt, *a, *b, *c, *d;
  };
  static constexpr bool kEach = P::kEachState;
  static constexpr int kVectors = kEach ? 3 : 2, kPerColumn = 1, kScalars = kEach ? 1 : 2, kLengths = 0;
  static constexpr float kEpsilon = 0;
  enum { kB, kC, kDecay };
  enum { kDt, kDecayOfHead };
  template <class C>
  struct Column {
    float d;
    FORGE_DEVICE Column(const Args& args, int head, int, int) : d(load(args.d + head)) {}
  };

  FORGE_DEVICE static float vector(const Args& args, int t, int head, int v, int row) {
    const int at = head / (P::kHeads / P::kGroups) * P::kStateDim + row;
    if (kEach && v == kDecay)
      return exp_of(row_element<P::kDtFloats>(args.dt, t, head) * load(args.a + head * P::kStateDim + row));
    return v == kB ? row_element<P::kBFloats>(args.b, t, at) : row_element<P::kCFloats>(args.c, t, at);
  }
  FORGE_DEVICE static float per_column(const Args& args, int t, int head, int column, int) {
    return row_element<P::kXFloats>(args.x, t, head * P::kHeadDim + column);
  }
  FORGE_DEVICE static float scalar(const Args& args, int t, int head, int n) {
    const float dt = row_element<P::kDtFloats>(args.dt, t, head);
    return n == kDt ? dt : exp_of(dt * load(args.a + head));
  }
  template <class C, class Staged, int Rows>
  FORGE_DEVICE static float step(const Column<C>&, const Staged& token, float (&s)[Rows]) {
    const float u = token.scalar(kDt) * token.per_column(0), decay = kEach ? 1.0f : token.scalar(kDecayOfHead);
    float y = 0;
    FORGE_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const float by = kEach ? token.rows(kDecay, i / 4).at[i % 4] : decay;
      s[i] = fma_of(token.rows(kB, i / 4).at[i % 4], u, s[i] * by);
      y = fma_of(s[i], token.rows(kC, i / 4).at[i % 4], y);
    }
    return y;
  }
  template <class Kept, class Staged>
  FORGE_DEVICE static float finish(const Kept& kept, const Staged& token, float y) {
    return fma_of(kept.d, token.per_column(0), y);
  }
};

/// Mamba-1: ScanHeads with heads of one column. The channels that share b and c are the columns of one StateUpdate head
/// (its kHeads is P::kGroups), and each column has its own dt and rates.
template <class P>
struct ScanChannels {
  using Args = typename ScanHeads<P>::Args;
  static constexpr int kVectors = 2, kPerColumn = 2, kScalars = 0, kLengths = 0, kShared = P::kHeads / P::kGroups;
  static constexpr float kEpsilon = 0;
  enum { kB, kC };
  enum { kX, kDt };
  template <class C>
  struct Column {
    float d, rates[C::kRows / C::kLanes];
    FORGE_DEVICE Column(const Args& args, int group, int column, int part) {
      const int channel = group * kShared + column;
      d = load(args.d + channel);
      FORGE_UNROLL
      for (int i = 0; i < C::kRows / C::kLanes; ++i) {
        const int row = (i / 4 * C::kLanes + part) * 4 + i % 4;
        rates[i] = load(args.a + (P::kEachState ? channel * P::kStateDim + row : channel));
      }
    }
  };

  FORGE_DEVICE static float vector(const Args& args, int t, int group, int v, int row) {
    const int at = group * P::kStateDim + row;
    return v == kB ? row_element<P::kBFloats>(args.b, t, at) : row_element<P::kCFloats>(args.c, t, at);
  }
  FORGE_DEVICE static float per_column(const Args& args, int t, int group, int column, int n) {
    const int channel = group * kShared + column;
    return n == kX ? row_element<P::kXFloats>(args.x, t, channel) : row_element<P::kDtFloats>(args.dt, t, channel);
  }
  FORGE_DEVICE static float scalar(const Args&, int, int, int) { return 0; }
  template <class C, class Staged, int Rows>
  FORGE_DEVICE static float step(const Column<C>& kept, const Staged& token, float (&s)[Rows]) {
    const float dt = token.per_column(kDt), u = dt * token.per_column(kX);
    float y = 0;
    FORGE_UNROLL
    for (int i = 0; i < Rows; ++i) {
      s[i] = fma_of(token.rows(kB, i / 4).at[i % 4], u, s[i] * exp_of(dt * kept.rates[i]));
      y = fma_of(s[i], token.rows(kC, i / 4).at[i % 4], y);
    }
    return y;
  }
  template <class Kept, class Staged>
  FORGE_DEVICE static float finish(const Kept& kept, const Staged& token, float y) {
    return fma_of(kept.d, token.per_column(kX), y);
  }
};

/// s = S^T a;  S[i] = w[i] S[i] + b[i] s + k[i] v;  y = S^T r. P has kHeadDim and the row strides kRFloats, kWFloats,
/// kKFloats, kVFloats, kAFloats and kBFloats.
template <class P>
struct Rwkv7 {
  struct Args {
    const float *r, *w, *k, *v, *a, *b;
  };
  static constexpr int kVectors = 5, kPerColumn = 1, kScalars = 0, kLengths = 0;
  static constexpr float kEpsilon = 0;
  enum { kR, kW, kK, kA, kB };
  template <class C>
  using Column = NoColumn<C>;

  FORGE_DEVICE static float vector(const Args& args, int t, int head, int v, int row) {
    const int at = head * P::kHeadDim + row;
    if (v == kR) return row_element<P::kRFloats>(args.r, t, at);
    if (v == kW) return row_element<P::kWFloats>(args.w, t, at);
    if (v == kK) return row_element<P::kKFloats>(args.k, t, at);
    return v == kA ? row_element<P::kAFloats>(args.a, t, at) : row_element<P::kBFloats>(args.b, t, at);
  }
  FORGE_DEVICE static float per_column(const Args& args, int t, int head, int column, int) {
    return row_element<P::kVFloats>(args.v, t, head * P::kHeadDim + column);
  }
  FORGE_DEVICE static float scalar(const Args&, int, int, int) { return 0; }
  template <class C, class Staged, int Rows>
  FORGE_DEVICE static float step(const NoColumn<C>&, const Staged& token, float (&s)[Rows]) {
    float recalled = 0, y = 0;
    FORGE_UNROLL
    for (int i = 0; i < Rows; ++i) recalled = fma_of(s[i], token.rows(kA, i / 4).at[i % 4], recalled);
    recalled = sum_lanes<C::kLanes>(recalled);
    const float v = token.per_column(0);
    FORGE_UNROLL
    for (int i = 0; i < Rows; ++i) {
      const float kept = fma_of(token.rows(kB, i / 4).at[i % 4], recalled, s[i] * token.rows(kW, i / 4).at[i % 4]);
      s[i] = fma_of(token.rows(kK, i / 4).at[i % 4], v, kept);
      y = fma_of(s[i], token.rows(kR, i / 4).at[i % 4], y);
    }
    return y;
  }
  template <class Kept, class Staged>
  FORGE_DEVICE static float finish(const Kept&, const Staged&, float y) {
    return y;
  }
};

}  // namespace forge::gpu
