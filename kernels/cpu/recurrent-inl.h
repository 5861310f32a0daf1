#pragma once
// Kernels with recurrent state (recurrent.h). delta_rule, scan_head and rwkv7 share one loop over the rows of a state S
// [rows][columns]. For each token it computes, column by column,
//
//   s = S^T erase                                       (if the rule erases)
//   S[i] = decay[i] S[i] + write[i] u + again[i] s      u is made of the token's values and s
//   y = S^T read
//
// The state is read and written once a token: while row i is updated for token t, it is also multiplied by erase[i] of
// token t + 1. Sums run over the rows in order.

#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/simd-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Vectors of 16 columns that one pass over a state's rows updates; four for each of them stay in registers.
inline constexpr int kStateVectors = kVectorsHeld >= 32 ? 4 : 1;

/// A token's factors of each row.
struct TokenRows {
  alignas(64) float decay[kStateRowsMax];
  alignas(64) float erase[kStateRowsMax];
  alignas(64) float write[kStateRowsMax];
  alignas(64) float again[kStateRowsMax];
  alignas(64) float read[kStateRowsMax];
};

/// Runs `Rule` over all tokens for up to NV * 16 columns from `column` on, `width` of them real. A rule has
///   kErases, kAgain                 whether s is needed, and whether it is also written back by `again`
///   rows(t, TokenRows&)             fills the factors of token t
///   input(t, column, count, s)      u of 16 columns
///   finish(t, column, count, y)     stores y of 16 columns
template <int NV, class Rule>
FORGE_INLINE void update_columns(const Rule& rule, std::size_t column, std::size_t width) {
  const auto& call = rule.call;
  const std::size_t rows = rule.state_rows();
  TokenRows factors[2];
  const auto count_of = [&](int j) FORGE_INLINE_BODY {
    const std::size_t begin = static_cast<std::size_t>(j) * 16;
    return width - begin < 16 ? width - begin : std::size_t{16};
  };
  V s[NV], u[NV], y[NV], next[NV];
  rule.rows(0, factors[0]);
  for (int j = 0; j < NV; ++j) s[j] = M::set1(0);
  // The state moves to where it is written, and meets the first token's erase factors on the way.
  for (std::size_t i = 0; i < rows; ++i)
    for (int j = 0; j < NV; ++j) {
      const std::size_t at = i * call.state_stride + column + static_cast<std::size_t>(j) * 16;
      const V row = call.read == nullptr ? M::set1(0) : load_some(call.read + at, count_of(j));
      if constexpr (Rule::kErases) s[j] = fma(row, M::set1(factors[0].erase[i]), s[j]);
      if (call.read != call.write) store_some(row, call.write + at, count_of(j));
    }
  for (std::size_t t = 0; t < call.tokens; ++t) {
    const TokenRows& now = factors[t % 2];
    TokenRows& then = factors[(t + 1) % 2];
    const bool more = t + 1 < call.tokens;
    if (more) rule.rows(t + 1, then);
    for (int j = 0; j < NV; ++j) {
      u[j] = rule.input(t, column + static_cast<std::size_t>(j) * 16, count_of(j), s[j]);
      y[j] = next[j] = M::set1(0);
    }
    for (std::size_t i = 0; i < rows; ++i) {
      const V decay = M::set1(now.decay[i]), write = M::set1(now.write[i]), read = M::set1(now.read[i]);
      for (int j = 0; j < NV; ++j) {
        float* const at = call.write + i * call.state_stride + column + static_cast<std::size_t>(j) * 16;
        V row = mul(load_some(at, count_of(j)), decay);
        row = fma(write, u[j], row);
        if constexpr (Rule::kAgain) row = fma(M::set1(now.again[i]), s[j], row);
        y[j] = fma(row, read, y[j]);
        if constexpr (Rule::kErases)
          if (more) next[j] = fma(row, M::set1(then.erase[i]), next[j]);
        store_some(row, at, count_of(j));
      }
    }
    for (int j = 0; j < NV; ++j) {
      rule.finish(t, column + static_cast<std::size_t>(j) * 16, count_of(j), y[j]);
      s[j] = next[j];
    }
  }
}

/// update_columns over all columns of the call.
template <class Rule>
FORGE_INLINE void update_state(const Rule& rule) {
  constexpr std::size_t kColumns = kStateVectors * 16;
  const std::size_t columns = rule.call.columns;
  std::size_t column = 0;
  for (; column + kColumns <= columns; column += kColumns) update_columns<kStateVectors>(rule, column, kColumns);
  for (; column < columns; column += 16) update_columns<1>(rule, column, columns - column < 16 ? columns - column : 16);
}

FORGE_INLINE const float* of_token(const TokenFloats& rows, std::size_t t) {
  return rows.data + t * rows.stride;
}

/// out[i] = x[i] * factor for `count` floats.
FORGE_INLINE void scaled(const float* x, float factor, std::size_t count, float* out) {
  const V by = M::set1(factor);
  for (std::size_t i = 0; i < count; i += 16) {
    const std::size_t some = count - i < 16 ? count - i : 16;
    store_some(mul(load_some(x + i, some), by), out + i, some);
  }
}

/// 1 / sqrt(sum of squares + eps), or 1 if eps is 0.
FORGE_INLINE float inverse_length(const float* x, std::size_t count, float eps) {
  if (eps <= 0) return 1;
  V squares = M::set1(0);
  for (std::size_t i = 0; i < count; i += 16) {
    const V v = load_some(x + i, count - i < 16 ? count - i : 16);
    squares = fma(v, v, squares);
  }
  return 1 / __builtin_sqrtf(reduce_add(squares) + eps);
}

/// erase = e^g k, so that s is what the decayed state recalls for k; u = beta (v - s).
struct DeltaRule {
  static constexpr bool kErases = true, kAgain = false;
  const DeltaRuleCall& call;
  [[nodiscard]] FORGE_INLINE std::size_t state_rows() const { return call.key_dim; }
  FORGE_INLINE void rows(std::size_t t, TokenRows& out) const {
    const std::size_t dim = call.key_dim;
    const float *q = of_token(call.q, t), *k = of_token(call.k, t), *decay = of_token(call.decay, t);
    scaled(k, inverse_length(k, dim, call.norm_eps), dim, out.write);
    scaled(q, inverse_length(q, dim, call.norm_eps) * call.scale, dim, out.read);
    const V all = exp(M::set1(decay[0]));
    for (std::size_t i = 0; i < dim; i += 16) {
      const std::size_t some = dim - i < 16 ? dim - i : 16;
      const V by = call.decay_each_row ? exp(load_some(decay + i, some)) : all;
      store_some(by, out.decay + i, some);
      store_some(mul(by, load_some(out.write + i, some)), out.erase + i, some);
    }
  }
  [[nodiscard]] FORGE_INLINE V input(std::size_t t, std::size_t column, std::size_t count, V s) const {
    return mul(M::set1(*of_token(call.beta, t)), sub(load_some(of_token(call.v, t) + column, count), s));
  }
  FORGE_INLINE void finish(std::size_t t, std::size_t column, std::size_t count, V y) const {
    store_some(y, call.out + t * call.out_stride + column, count);
  }
};
inline void delta_rule(const DeltaRuleCall& call) {
  update_state(DeltaRule{call});
}

struct ScanHead {
  static constexpr bool kErases = false, kAgain = false;
  const SelectiveScanCall& call;
  [[nodiscard]] FORGE_INLINE std::size_t state_rows() const { return call.state_dim; }
  FORGE_INLINE void rows(std::size_t t, TokenRows& out) const {
    const float dt = *of_token(call.dt, t);
    const std::size_t bytes = call.state_dim * sizeof(float);
    std::memcpy(out.write, of_token(call.b, t), bytes);
    std::memcpy(out.read, of_token(call.c, t), bytes);
    const V all = exp(M::set1(dt * call.a[0]));
    for (std::size_t n = 0; n < call.state_dim; n += 16) {
      const std::size_t some = call.state_dim - n < 16 ? call.state_dim - n : 16;
      store_some(call.a_each_state ? exp(mul(load_some(call.a + n, some), M::set1(dt))) : all, out.decay + n, some);
    }
  }
  [[nodiscard]] FORGE_INLINE V input(std::size_t t, std::size_t column, std::size_t count, V) const {
    return mul(load_some(of_token(call.x, t) + column, count), M::set1(*of_token(call.dt, t)));
  }
  FORGE_INLINE void finish(std::size_t t, std::size_t column, std::size_t count, V y) const {
    const V x = load_some(of_token(call.x, t) + column, count);
    store_some(fma(x, M::set1(*call.d), y), call.out + t * call.out_stride + column, count);
  }
};
inline void scan_head(const SelectiveScanCall& call) {
  update_state(ScanHead{call});
}

struct Rwkv7 {
  static constexpr bool kErases = true, kAgain = true;
  const Rwkv7Call& call;
  [[nodiscard]] FORGE_INLINE std::size_t state_rows() const { return call.head_dim; }
  FORGE_INLINE void rows(std::size_t t, TokenRows& out) const {
    const std::size_t bytes = call.head_dim * sizeof(float);
    std::memcpy(out.decay, of_token(call.w, t), bytes);
    std::memcpy(out.erase, of_token(call.a, t), bytes);
    std::memcpy(out.write, of_token(call.k, t), bytes);
    std::memcpy(out.again, of_token(call.b, t), bytes);
    std::memcpy(out.read, of_token(call.r, t), bytes);
  }
  [[nodiscard]] FORGE_INLINE V input(std::size_t t, std::size_t column, std::size_t count, V) const {
    return load_some(of_token(call.v, t) + column, count);
  }
  FORGE_INLINE void finish(std::size_t t, std::size_t column, std::size_t count, V y) const {
    store_some(y, call.out + t * call.out_stride + column, count);
  }
};
inline void rwkv7(const Rwkv7Call& call) {
  update_state(Rwkv7{call});
}

/// Mamba-1: a head for each column, so every element of the state has its own decay. 16 columns at a time, with their
/// rates turned to rows.
inline void scan_channels(const SelectiveScanCall& call) {
  alignas(64) float rates[kStateRowsMax][16];
  for (std::size_t column = 0; column < call.columns; column += 16) {
    const std::size_t count = call.columns - column < 16 ? call.columns - column : 16;
    for (std::size_t n = 0; n < call.state_dim; ++n)
      for (std::size_t j = 0; j < 16; ++j)
        rates[n][j] = j < count ? call.a[call.a_each_state ? (column + j) * call.state_dim + n : column + j] : 0;
    for (std::size_t n = 0; n < call.state_dim && call.read != call.write; ++n) {
      const std::size_t at = n * call.state_stride + column;
      store_some(call.read == nullptr ? M::set1(0) : load_some(call.read + at, count), call.write + at, count);
    }
    for (std::size_t t = 0; t < call.tokens; ++t) {
      const V x = load_some(of_token(call.x, t) + column, count), dt = load_some(of_token(call.dt, t) + column, count);
      const float *b = of_token(call.b, t), *c = of_token(call.c, t);
      const V u = mul(dt, x);
      V y = mul(x, load_some(call.d + column, count));
      for (std::size_t n = 0; n < call.state_dim; ++n) {
        float* const at = call.write + n * call.state_stride + column;
        const V h = fma(u, M::set1(b[n]), mul(load_some(at, count), exp(mul(dt, M::load(rates[n])))));
        y = fma(h, M::set1(c[n]), y);
        store_some(h, at, count);
      }
      store_some(y, call.out + t * call.out_stride + column, count);
    }
  }
}

inline void short_conv(const ShortConvCall& call) {
  alignas(64) float taps[kConvTapsMax][16];
  const std::size_t held = call.taps - 1;
  for (std::size_t column = 0; column < call.columns; column += 16) {
    const std::size_t count = call.columns - column < 16 ? call.columns - column : 16;
    for (std::size_t k = 0; k < call.taps; ++k)
      for (std::size_t j = 0; j < 16; ++j) taps[k][j] = j < count ? call.kernel[(column + j) * call.taps + k] : 0;
    V inputs[kConvTapsMax];  // the last `held` ones, the oldest first
    for (std::size_t k = 0; k < held; ++k)
      inputs[k] = call.read == nullptr ? M::set1(0) : load_some(call.read + k * call.state_stride + column, count);
    const V bias = call.bias == nullptr ? M::set1(0) : load_some(call.bias + column, count);
    for (std::size_t t = 0; t < call.tokens; ++t) {
      inputs[held] = load_some(of_token(call.x, t) + column, count);
      V y = bias;
      for (std::size_t k = 0; k < call.taps; ++k) y = fma(inputs[k], M::load(taps[k]), y);
      store_some(y, call.out + t * call.out_stride + column, count);
      for (std::size_t k = 0; k < held; ++k) inputs[k] = inputs[k + 1];
    }
    for (std::size_t k = 0; k < held; ++k) store_some(inputs[k], call.write + k * call.state_stride + column, count);
  }
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
