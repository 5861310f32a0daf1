#pragma once
// Norms, RoPE, quantisation, KV stores and argmax on tiles of floats. Every row is independent. The short end of a row
// is computed as a full vector in a buffer, so an element's bits do not depend on its position.

#include <type_traits>

#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/reduce-inl.h"
#include "kernels/quant/q8a.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

inline void scale_rows(Tile x, const float* factors) {
  for_each_vector(x, [&](V v, std::size_t t) FORGE_INLINE_BODY { return mul(v, M::set1(factors[t])); });
}

inline void copy(ConstTile x, Tile out) {
  for (std::size_t t = 0; t < x.rows; ++t)
    std::memcpy(out.data + t * out.stride, x.data + t * x.stride, x.width * sizeof(float));
}

/// Sum of the squares of up to 16 floats, added by halves: 16 lanes -> 8 -> 4 -> 2 -> 1.
FORGE_INLINE float sum_squares_of_block(const float* x, std::size_t count) {
  const V a = load_some(x, count);
  return reduce_add(mul(a, a));
}

/// Visits a tile in parts of `width` columns, so that 16 parts at a time are handled by one vector (a lane per part).
/// Where a row has 16 parts left, f gets one row by 16 parts; a narrower rest is visited as 2 rows by 8 parts, 4 by 4,
/// 8 by 2 and 16 by 1. f(row, column, n) handles 16/n rows by n parts, n being a constant; rest(row, column) handles
/// one part. Every part is visited once.
template <std::size_t width, std::size_t n = 16, class F, class Rest>
FORGE_INLINE void for_sixteen_parts(const ConstTile& x, F f, Rest rest, std::size_t column = 0) {
  constexpr std::size_t kRows = 16 / n;
  for (; column + n * width <= x.width; column += n * width) {
    std::size_t t = 0;
    for (; t + kRows <= x.rows; t += kRows) f(t, column, std::integral_constant<std::size_t, n>{});
    for (; t < x.rows; ++t)
      for (std::size_t part = 0; part < n; ++part) rest(t, column + part * width);
  }
  if constexpr (n > 1)
    for_sixteen_parts<width, n / 2>(x, f, rest, column);
  else if (column < x.width)
    for (std::size_t t = 0; t < x.rows; ++t) rest(t, column);
}

/// Stores a vector whose lanes are n values for each of 16/n rows, to rows `stride` floats apart.
template <std::size_t n>
FORGE_INLINE void store_parts(V v, float* out, std::size_t stride) {
  if constexpr (n == 16) return M::store(v, out);
  alignas(64) float lanes[16];
  M::store(v, lanes);
#pragma GCC unroll 16
  for (std::size_t row = 0; row < 16 / n; ++row) std::memcpy(out + row * stride, lanes + row * n, n * sizeof(float));
}

/// 16 blocks of 16 columns at a time: one vector of squares per block, and one reduction for all 16 of them.
inline void sum_squares(ConstTile x, float* partial, std::size_t stride) {
  const auto sixteen = [&]<std::size_t n>(std::size_t t, std::size_t column, std::integral_constant<std::size_t, n>)
                           FORGE_INLINE_BODY {
                             const float* first = x.data + t * x.stride + column;
                             V squares[16];
#pragma GCC unroll 16
                             for (std::size_t i = 0; i < 16; ++i) {
                               const V a = M::load(first + i / n * x.stride + i % n * 16);
                               squares[i] = mul(a, a);
                             }
                             store_parts<n>(reduce_each<Sum>(squares), partial + t * stride + column / 16, stride);
                           };
  for_sixteen_parts<16>(x, sixteen, [&](std::size_t t, std::size_t column) FORGE_INLINE_BODY {
    partial[t * stride + column / 16] = sum_squares_of_block(x.data + t * x.stride + column, x.width - column);
  });
}

FORGE_INLINE float inv_rms_of(double total, std::size_t dim, float eps) {
  return static_cast<float>(1.0 / __builtin_sqrt(total / static_cast<double>(dim) + static_cast<double>(eps)));
}

/// inv_rms for rows [t, t + N). A row is one chain of dependent additions, so N rows are added side by side.
template <std::size_t N>
FORGE_INLINE void inv_rms_rows(const float* partial, std::size_t stride, std::size_t count, std::size_t dim, float eps,
                               float* inv) {
  double totals[N] = {};
  for (std::size_t b = 0; b < count; ++b)
#pragma GCC unroll 8
    for (std::size_t i = 0; i < N; ++i) totals[i] += static_cast<double>(partial[i * stride + b]);
#pragma GCC unroll 8
  for (std::size_t i = 0; i < N; ++i) inv[i] = inv_rms_of(totals[i], dim, eps);
}

inline void inv_rms(const float* partial, std::size_t stride, std::size_t count, std::size_t tokens, std::size_t dim,
                    float eps, float* inv) {
  constexpr std::size_t kTogether = 8;
  std::size_t t = 0;
  for (; t + kTogether <= tokens; t += kTogether)
    inv_rms_rows<kTogether>(partial + t * stride, stride, count, dim, eps, inv + t);
  for (; t < tokens; ++t) inv_rms_rows<1>(partial + t * stride, stride, count, dim, eps, inv + t);
}

FORGE_INLINE void rms_norm_row(const float* x, std::size_t width, const float* weight, float eps, float* out) {
  double total = 0;
  for (std::size_t i = 0; i < width; i += 16) total += static_cast<double>(sum_squares_of_block(x + i, width - i));
  const V inv = M::set1(inv_rms_of(total, width, eps));
  for (std::size_t i = 0; i < width; i += 16) {
    V v = mul(load_some(x + i, width - i), inv);
    if (weight) v = mul(v, load_some(weight + i, width - i));
    store_some(v, out + i, width - i);
  }
}
inline void rms_norm(ConstTile x, const float* weight, float eps, Tile out) {
  for (std::size_t t = 0; t < x.rows; ++t)
    rms_norm_row(x.data + t * x.stride, x.width, weight, eps, out.data + t * out.stride);
}
inline void rms_norm_heads(Tile x, std::size_t head_dim, const float* weight, float eps) {
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t i = 0; i + head_dim <= x.width; i += head_dim) {
      float* head = x.data + t * x.stride + i;
      rms_norm_row(head, head_dim, weight, eps, head);
    }
}

/// LayerNorm of one run of `dim` floats. The variance is computed from x - mean, so that rows far from 0 keep their
/// precision.
FORGE_INLINE void layer_norm_run(float* x, std::size_t dim, const float* weight, const float* bias, float eps) {
  double total = 0;
  for (std::size_t i = 0; i < dim; i += 16) total += static_cast<double>(reduce_add(load_some(x + i, dim - i)));
  const V mean = M::set1(static_cast<float>(total / static_cast<double>(dim)));
  for (std::size_t i = 0; i < dim; i += 16) store_some(sub(load_some(x + i, dim - i), mean), x + i, dim - i);
  double squares = 0;
  for (std::size_t i = 0; i < dim; i += 16) squares += static_cast<double>(sum_squares_of_block(x + i, dim - i));
  const V inv = M::set1(inv_rms_of(squares, dim, eps));
  for (std::size_t i = 0; i < dim; i += 16) {
    V v = mul(mul(load_some(x + i, dim - i), inv), load_some(weight + i, dim - i));
    if (bias) v = add(v, load_some(bias + i, dim - i));
    store_some(v, x + i, dim - i);
  }
}
inline void layer_norm_heads(Tile x, std::size_t head_dim, const float* weight, const float* bias, bool shared,
                             float eps) {
  for (std::size_t t = 0; t < x.rows; ++t)
    for (std::size_t i = 0; i + head_dim <= x.width; i += head_dim) {
      const std::size_t from = shared ? 0 : i;
      layer_norm_run(x.data + t * x.stride + i, head_dim, weight + from, bias ? bias + from : nullptr, eps);
    }
}

/// Rotates the pairs (low[i], high[i]) by their angles; cos_sin is interleaved (cos, sin).
FORGE_INLINE void rope_halves(float* low, float* high, std::size_t pairs, const float* cos_sin) {
  const auto turn = [](float* at, float* opposite, const float* angles) FORGE_INLINE_BODY {
    const B a = base_load(at), b = base_load(opposite), first = base_load(angles), second = base_load(angles + kLanes);
    const B c = concat_even(first, second), s = concat_odd(first, second);
    base_store(sub(mul(a, c), mul(b, s)), at);
    base_store(add(mul(a, s), mul(b, c)), opposite);
  };
  std::size_t i = 0;
  for (; i + kLanes <= pairs; i += kLanes) turn(low + i, high + i, cos_sin + 2 * i);
  if (i == pairs) return;
  const std::size_t bytes = (pairs - i) * sizeof(float);
  float a[kLanes]{}, b[kLanes]{}, angles[2 * kLanes]{};
  std::memcpy(a, low + i, bytes);
  std::memcpy(b, high + i, bytes);
  std::memcpy(angles, cos_sin + 2 * i, 2 * bytes);
  turn(a, b, angles);
  std::memcpy(low + i, a, bytes);
  std::memcpy(high + i, b, bytes);
}

/// Rotates the pairs (head[2i], head[2i + 1]). The end of a row is computed as a vector too: g++ 12 at -O3 compiles a
/// scalar loop to vfmaddsub in spite of -ffp-contract=off, and classes would round differently.
FORGE_INLINE void rope_pairs(float* head, std::size_t pairs, const float* cos_sin) {
  alignas(64) float signs[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) signs[i] = i % 2 == 0 ? -1.0f : 1.0f;
  const B sign = base_load(signs);
  const auto turn = [&](float* at, const float* angles) FORGE_INLINE_BODY {
    const B x = base_load(at), angle = base_load(angles);
    base_store(add(mul(x, dup_even(angle)), mul(swap_pairs(x), mul(dup_odd(angle), sign))), at);
  };
  std::size_t i = 0;
  for (; i + kLanes <= 2 * pairs; i += kLanes) turn(head + i, cos_sin + i);
  if (i == 2 * pairs) return;
  const std::size_t bytes = (2 * pairs - i) * sizeof(float);
  float x[kLanes]{}, angles[kLanes]{};
  std::memcpy(x, head + i, bytes);
  std::memcpy(angles, cos_sin + i, bytes);
  turn(x, angles);
  std::memcpy(head + i, x, bytes);
}

inline void rope(Tile x, std::size_t head_dim, std::size_t rotary_dims, RopeMode mode, const float* cos_sin,
                 std::size_t cos_sin_stride) {
  const std::size_t pairs = rotary_dims / 2;
  for (std::size_t t = 0; t < x.rows; ++t) {
    const float* angles = cos_sin + t * cos_sin_stride;
    for (std::size_t at = 0; at + head_dim <= x.width; at += head_dim) {
      float* head = x.data + t * x.stride + at;
      if (mode == RopeMode::kHalves) {
        rope_halves(head, head + pairs, pairs, angles);
        continue;
      }
      rope_pairs(head, pairs, angles);
    }
  }
}

/// 32 floats that are being quantised to int8. step: amax / 127; finite: true if all 32 are.
struct Block32 {
  V x0, x1;
  float step;
  bool finite;
};
FORGE_INLINE Block32 load_block(const float* in) {
  Block32 block{M::load(in), M::load(in + 16), 0, false};
  block.step = reduce_max_bits(max_bits(vabs(block.x0), vabs(block.x1))) / 127.0f;
  block.finite = block.step < __builtin_inff();
  return block;
}
/// q = x * (1 / step), rounded to nearest even and clamped to [-127, 127] (if `step` itself was rounded, as in the KV
/// cache, x / step can exceed 127). Returns the sum of q.
FORGE_INLINE std::int32_t round_block(const Block32& block, float step, std::int8_t* q) {
  const V limit = M::set1(127.0f), bottom = M::set1(-127.0f), inverse = M::set1(1.0f / step);
  const V q0 = round_even(vmax(bottom, vmin(limit, mul(block.x0, inverse))));
  const V q1 = round_even(vmax(bottom, vmin(limit, mul(block.x1, inverse))));
  M::store_i8(q0, q);
  M::store_i8(q1, q + 16);
  return static_cast<std::int32_t>(reduce_add(add(q0, q1)));  // whole numbers: exact in any order
}

/// quantize_q8a_block (kernels/quant/q8a.h) with vectors.
FORGE_INLINE void quantize_block(const float* x, std::int8_t* quants, float* scale, float* sum) {
  const Block32 values = load_block(x);
  if (!values.finite || !(values.step > quant::kQ8aScaleLeast)) {
    std::memset(quants, 0, 32);
    *scale = values.finite ? values.step : __builtin_nanf("");
    *sum = *scale * 0.0f;
    return;
  }
  *scale = values.step;
  *sum = values.step * static_cast<float>(round_block(values, values.step, quants));
}

inline void quantize_q8a(ConstTile x, std::byte* rows, std::size_t row_bytes, std::size_t k, std::size_t block) {
  const auto quants_at = [&](std::size_t t, std::size_t column) FORGE_INLINE_BODY {
    return reinterpret_cast<std::int8_t*>(rows + t * row_bytes) + 32 * block + column;
  };
  const auto scales_at = [&](std::size_t t, std::size_t column) FORGE_INLINE_BODY {
    return reinterpret_cast<float*>(rows + t * row_bytes + quant::q8a_scales_offset(k)) + block + column / 32;
  };
  const auto sums_at = [&](std::size_t t, std::size_t column) FORGE_INLINE_BODY {
    return reinterpret_cast<float*>(rows + t * row_bytes + quant::q8a_sums_offset(k)) + block + column / 32;
  };
  const auto one = [&](std::size_t t, std::size_t column) FORGE_INLINE_BODY {
    quantize_block(x.data + t * x.stride + column, quants_at(t, column), scales_at(t, column), sums_at(t, column));
  };
  // 16 blocks at a time: per-block numbers (scale, sum) are the lanes of one vector.
  const auto sixteen = [&]<std::size_t n>(std::size_t t, std::size_t column,
                                          std::integral_constant<std::size_t, n>) FORGE_INLINE_BODY {
    const float* first = x.data + t * x.stride + column;
    V vectors[16];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      const float* in = first + i / n * x.stride + i % n * 32;
      vectors[i] = max_bits(vabs(M::load(in)), vabs(M::load(in + 16)));
    }
    const V step = div(reduce_each<LargestBits>(vectors), M::set1(127.0f));
    // 1 in lanes whose block needs the careful path: a scale too small, infinite or NaN. step - step is NaN for those
    // two.
    const V is_odd = select_lt(M::set1(quant::kQ8aScaleLeast), step, zero(), M::set1(1.0f));
    if (!all_zero(add(is_odd, sub(step, step)))) {
      for (std::size_t i = 0; i < 16; ++i) one(t + i / n, column + i % n * 32);
      return;
    }
    alignas(64) float inverses[16];
    M::store(div(M::set1(1.0f), step), inverses);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {  // no clamp: this step is exactly amax / 127
      const float* in = first + i / n * x.stride + i % n * 32;
      std::int8_t* out = quants_at(t + i / n, column + i % n * 32);
      const V inverse = M::set1(inverses[i]);
      const V q0 = round_even(mul(M::load(in), inverse)), q1 = round_even(mul(M::load(in + 16), inverse));
      M::store_i8(q0, out);
      M::store_i8(q1, out + 16);
      vectors[i] = add(q0, q1);
    }
    store_parts<n>(step, scales_at(t, column), row_bytes / sizeof(float));
    store_parts<n>(mul(step, reduce_each<Sum>(vectors)), sums_at(t, column), row_bytes / sizeof(float));
  };
  for_sixteen_parts<32>(x, sixteen, one);
}

inline std::size_t argmax(const float* values, std::size_t count) {
  float best = -__builtin_inff();
  std::size_t at = 0;
  bool found = false;
  for (std::size_t i = 0; i < count; i += 16) {
    if (i + 16 <= count) {  // skip 16 values at once if none exceeds the best; NaN compares false
      const V v = M::load(values + i);
      const V beats = select_lt(M::set1(best), v, M::set1(1.0f), zero());
      if (found && reduce_max(beats) == 0.0f) continue;
    }
    for (std::size_t j = i; j < i + 16 && j < count; ++j)
      if (values[j] > best || (!found && values[j] == best)) {
        best = values[j];
        at = j;
        found = true;
      }
  }
  return at;
}

inline std::uint64_t read_bytes(const std::byte* data, std::size_t bytes) {
  std::uint64_t sums[8] = {}, tail = 0;
  std::size_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    std::uint64_t words[8];
    std::memcpy(words, data + i, 64);
    for (int j = 0; j < 8; ++j) sums[j] ^= words[j];
  }
  std::uint64_t rest[8] = {};  // the end of the data, padded with zeros
  std::memcpy(rest, data + i, bytes - i);
  for (int j = 0; j < 8; ++j) tail ^= sums[j] ^ rest[j];
  return tail;
}

/// Stores one token's row of one head into its slot of a KV block, as a column (Transposed, for keys) or as a row.
/// `head` is the start of the head's K or V in the block.
template <bool Transposed>
FORGE_INLINE void store_head_f16(const float* x, std::size_t width, std::byte* head, std::size_t slot) {
  auto* out = reinterpret_cast<std::uint16_t*>(head) + (Transposed ? slot : slot * width);
  for (std::size_t i = 0; i < width; i += 16) {
    const std::size_t count = width - i < 16 ? width - i : 16;
    std::uint16_t halves[16];
    M::store_half(load_some(x + i, width - i), halves);
    if constexpr (Transposed)
      for (std::size_t j = 0; j < count; ++j) out[(i + j) * kKvBlockTokens] = halves[j];
    else
      std::memcpy(out + i, halves, count * sizeof(std::uint16_t));
  }
}
/// The same for a Q8_0 cache, with one scale per 32 columns. q is computed with the scale as stored, rounded to f16.
template <bool Transposed>
FORGE_INLINE void store_head_q8(const float* x, std::size_t width, std::byte* head, std::size_t slot) {
  auto* out = reinterpret_cast<std::int8_t*>(head) + (Transposed ? slot : slot * width);
  auto* scales = reinterpret_cast<std::uint16_t*>(head + kKvBlockTokens * width) + slot;
  for (std::size_t i = 0; i < width; i += kKvScaleColumns, scales += kKvBlockTokens) {
    const Block32 values = load_block(x + i);
    std::int8_t q[kKvScaleColumns] = {};
    *scales = quant::f16_of_f32(values.finite ? values.step : __builtin_nanf(""));
    if (const float step = quant::f32_of_f16(*scales); step > 0) round_block(values, step, q);
    if constexpr (Transposed)
      for (std::size_t j = 0; j < kKvScaleColumns; ++j) out[(i + j) * kKvBlockTokens] = q[j];
    else
      std::memcpy(out + i, q, kKvScaleColumns);
  }
}

template <bool Transposed>
FORGE_INLINE void store_kv(const ConstTile& x, DType type, std::size_t width, std::byte* const* heads,
                           const std::int32_t* slots) {
  const std::size_t head_bytes = kv_head_bytes(type, width);
  for (std::size_t t = 0; t < x.rows; ++t) {
    if (!heads[t]) continue;
    std::byte* head = heads[t];
    const float* in = x.data + t * x.stride;
    for (std::size_t column = 0; column < x.width; column += width, head += head_bytes)
      if (type == DType::kQ8_0)
        store_head_q8<Transposed>(in + column, width, head, static_cast<std::size_t>(slots[t]));
      else
        store_head_f16<Transposed>(in + column, width, head, static_cast<std::size_t>(slots[t]));
  }
}
inline void store_kv_columns(ConstTile x, DType type, std::size_t width, std::byte* const* heads,
                             const std::int32_t* slots) {
  store_kv<true>(x, type, width, heads, slots);
}
inline void store_kv_rows(ConstTile x, DType type, std::size_t width, std::byte* const* heads,
                          const std::int32_t* slots) {
  store_kv<false>(x, type, width, heads, slots);
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
