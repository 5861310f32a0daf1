#pragma once
// SIMD types of one CPU class: B is one register of floats, V is always 16 floats (one, two or four registers). All
// kernels are written with V, so every class computes in the same order, and the classes with FMA give the same bits.
// SIMD classes use Highway's vectors. kGeneric uses the compiler's vector type, because Highway 1.0.3 has no SSE2
// target and no working 128-bit emulation with g++ 12.2.
//
// The *-inl.h pattern: each class's translation unit (classes/) defines FORGE_CPU_NAMESPACE and includes these headers
// once; they put everything into forge::cpu::FORGE_CPU_NAMESPACE. All functions are forced inline or in that namespace,
// so that nothing compiled for one class can be linked into another.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/quant/f16.h"

#if !defined(FORGE_CPU_GENERIC)
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 does not include them, and nothing here needs them
#include <hwy/highway.h>
#endif

#define FORGE_INLINE [[gnu::always_inline]] inline
#define FORGE_INLINE_BODY __attribute__((always_inline))  // for lambdas, after the parameters

namespace forge::cpu::FORGE_CPU_NAMESPACE {

#if defined(__AVX512F__) || defined(__aarch64__)
/// Vector registers of the class.
inline constexpr std::size_t kRegisters = 32;
#else
inline constexpr std::size_t kRegisters = 16;
#endif

// Operations on B, one register of kLanes floats. Both branches below define the same set:
//   base_load_f16, _bf16, _i8    load kLanes elements and convert them to f32
//   store_f16, base_store_i8     convert and store; the latter takes whole numbers in [-128, 127]
//   vmin, vmax                   the second operand if either is NaN, as x86 does
//   exp2_rounded                 takes n + kRounder for whole n in [-126, 127] and returns 2^n: the low bits of that
//                                float are n, and a shift by 23 moves them into the exponent field
//   reduce_add                   sum of all lanes, by halves: 16 -> 8 -> 4, then (0 + 2) + (1 + 3), in every class
//   max_bits, reduce_max_bits    the larger of non-negative values, compared as integers, so that NaN is the largest
//   dup_even, dup_odd            of lanes (2i, 2i+1) the first, or the second, in both
//   swap_pairs                   lanes (2i, 2i+1) exchanged
//   concat_even, concat_odd      the even (odd) lanes of a, then those of b
#if defined(FORGE_CPU_GENERIC)

using B = float __attribute__((vector_size(16)));
using BInt = std::int32_t __attribute__((vector_size(16)));
inline constexpr std::size_t kLanes = 4;

FORGE_INLINE B base_set1(float x) {
  return B{x, x, x, x};
}
FORGE_INLINE B base_load(const float* p) {
  B v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
FORGE_INLINE void base_store(B v, float* p) {
  std::memcpy(p, &v, sizeof(v));
}
FORGE_INLINE B base_load_f16(const std::uint16_t* p) {
  return B{quant::f32_of_f16(p[0]), quant::f32_of_f16(p[1]), quant::f32_of_f16(p[2]), quant::f32_of_f16(p[3])};
}
FORGE_INLINE B base_load_bf16(const std::uint16_t* p) {
  return B{quant::f32_of_bf16(p[0]), quant::f32_of_bf16(p[1]), quant::f32_of_bf16(p[2]), quant::f32_of_bf16(p[3])};
}
FORGE_INLINE B base_load_i8(const std::int8_t* p) {
  return B{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), static_cast<float>(p[3])};
}
FORGE_INLINE void store_f16(B v, std::uint16_t* p) {
  for (int i = 0; i < 4; ++i) p[i] = quant::f16_of_f32(v[i]);
}
FORGE_INLINE void base_store_i8(B v, std::int8_t* p) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<std::int8_t>(v[i]);
}
FORGE_INLINE bool all_zero(B v) {
  return v[0] == 0.0f && v[1] == 0.0f && v[2] == 0.0f && v[3] == 0.0f;
}
FORGE_INLINE B add(B a, B b) {
  return a + b;
}
FORGE_INLINE B sub(B a, B b) {
  return a - b;
}
FORGE_INLINE B mul(B a, B b) {
  return a * b;
}
FORGE_INLINE B div(B a, B b) {
  return a / b;
}
FORGE_INLINE B fma(B a, B b, B c) {
#if defined(__FP_FAST_FMAF)
  return B{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]), __builtin_fmaf(a[2], b[2], c[2]),
           __builtin_fmaf(a[3], b[3], c[3])};
#else
  return a * b + c;
#endif
}
FORGE_INLINE B vmin(B a, B b) {
  return a < b ? a : b;
}
FORGE_INLINE B vmax(B a, B b) {
  return a > b ? a : b;
}
FORGE_INLINE B vabs(B a) {
  return (B)((BInt)a & 0x7fffffff);
}
FORGE_INLINE B select_lt(B a, B b, B yes, B no) {
  return a < b ? yes : no;
}
FORGE_INLINE B copy_sign(B magnitude, B sign) {
  return (B)(((BInt)magnitude & 0x7fffffff) | ((BInt)sign & (BInt{} + INT32_MIN)));
}
FORGE_INLINE B exp2_rounded(B n_and_rounder) {
  return (B)(((BInt)n_and_rounder << 23) + (127 << 23));
}
FORGE_INLINE float reduce_add(B v) {
  return (v[0] + v[2]) + (v[1] + v[3]);
}
FORGE_INLINE float reduce_max(B v) {
  const float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}
FORGE_INLINE B max_bits(B a, B b) {
  return (BInt)a > (BInt)b ? a : b;
}
FORGE_INLINE float reduce_max_bits(B v) {
  const B a = max_bits(v, B{v[2], v[3], v[0], v[1]});
  return max_bits(a, B{a[1], a[0], a[3], a[2]})[0];
}
FORGE_INLINE B dup_even(B v) {
  return B{v[0], v[0], v[2], v[2]};
}
FORGE_INLINE B dup_odd(B v) {
  return B{v[1], v[1], v[3], v[3]};
}
FORGE_INLINE B swap_pairs(B v) {
  return B{v[1], v[0], v[3], v[2]};
}
FORGE_INLINE B concat_even(B a, B b) {
  return B{a[0], a[2], b[0], b[2]};
}
FORGE_INLINE B concat_odd(B a, B b) {
  return B{a[1], a[3], b[1], b[3]};
}

#else

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using DInt = hn::RebindToSigned<D>;
using DWide = hn::RebindToUnsigned<D>;
using DHalf = hn::Rebind<hwy::float16_t, D>;
using DShort = hn::Rebind<std::uint16_t, D>;
using DByte = hn::Rebind<std::int8_t, D>;
using B = hn::Vec<D>;
inline constexpr std::size_t kLanes = hn::MaxLanes(D());

FORGE_INLINE B base_set1(float x) {
  return hn::Set(D(), x);
}
FORGE_INLINE B base_load(const float* p) {
  return hn::LoadU(D(), p);
}
FORGE_INLINE void base_store(B v, float* p) {
  hn::StoreU(v, D(), p);
}
FORGE_INLINE B base_load_f16(const std::uint16_t* p) {
  return hn::PromoteTo(D(), hn::LoadU(DHalf(), reinterpret_cast<const hwy::float16_t*>(p)));
}
FORGE_INLINE B base_load_bf16(const std::uint16_t* p) {
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(DWide(), hn::LoadU(DShort(), p))));
}
FORGE_INLINE B base_load_i8(const std::int8_t* p) {
  return hn::ConvertTo(D(), hn::PromoteTo(DInt(), hn::LoadU(DByte(), p)));
}
FORGE_INLINE void store_f16(B v, std::uint16_t* p) {
  hn::StoreU(hn::DemoteTo(DHalf(), v), DHalf(), reinterpret_cast<hwy::float16_t*>(p));
}
FORGE_INLINE void base_store_i8(B v, std::int8_t* p) {
  hn::StoreU(hn::DemoteTo(DByte(), hn::ConvertTo(DInt(), v)), DByte(), p);
}
FORGE_INLINE bool all_zero(B v) {
  return hn::AllTrue(D(), hn::Eq(v, hn::Zero(D())));
}
FORGE_INLINE B add(B a, B b) {
  return hn::Add(a, b);
}
FORGE_INLINE B sub(B a, B b) {
  return hn::Sub(a, b);
}
FORGE_INLINE B mul(B a, B b) {
  return hn::Mul(a, b);
}
FORGE_INLINE B div(B a, B b) {
  return hn::Div(a, b);
}
FORGE_INLINE B fma(B a, B b, B c) {
  return hn::MulAdd(a, b, c);
}
// Highway's NEON minimum returns the number if one operand is NaN, so it is written as a select there.
FORGE_INLINE B vmin(B a, B b) {
#if defined(__aarch64__)
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#else
  return hn::Min(a, b);
#endif
}
FORGE_INLINE B vmax(B a, B b) {
#if defined(__aarch64__)
  return hn::IfThenElse(hn::Gt(a, b), a, b);
#else
  return hn::Max(a, b);
#endif
}
FORGE_INLINE B vabs(B a) {
  return hn::Abs(a);
}
FORGE_INLINE B select_lt(B a, B b, B yes, B no) {
  return hn::IfThenElse(hn::Lt(a, b), yes, no);
}
FORGE_INLINE B copy_sign(B magnitude, B sign) {
  return hn::CopySign(magnitude, sign);
}
FORGE_INLINE B exp2_rounded(B n_and_rounder) {
  const DInt ints;
  return hn::BitCast(D(), hn::Add(hn::ShiftLeft<23>(hn::BitCast(ints, n_and_rounder)), hn::Set(ints, 127 << 23)));
}
/// Adds the upper half to the lower half until 4 lanes are left. Pair<H> adds its halves in the same order.
template <class Tag, class Vector>
FORGE_INLINE float reduce_add_halves(Tag tag, Vector v) {
  if constexpr (hn::MaxLanes(tag) == 4) {
    float lanes[4];
    hn::StoreU(v, tag, lanes);
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
  } else {
    const hn::Half<Tag> half;
    return reduce_add_halves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
FORGE_INLINE float reduce_add(B v) {
  return reduce_add_halves(D(), v);
}
FORGE_INLINE float reduce_max(B v) {
  return hn::GetLane(hn::MaxOfLanes(D(), v));
}
FORGE_INLINE B max_bits(B a, B b) {
  return hn::BitCast(D(), hn::Max(hn::BitCast(DInt(), a), hn::BitCast(DInt(), b)));
}
FORGE_INLINE float reduce_max_bits(B v) {
  return hn::GetLane(hn::BitCast(D(), hn::MaxOfLanes(DInt(), hn::BitCast(DInt(), v))));
}
FORGE_INLINE B dup_even(B v) {
  return hn::DupEven(v);
}
FORGE_INLINE B dup_odd(B v) {
  return hn::DupOdd(v);
}
FORGE_INLINE B swap_pairs(B v) {
  return hn::Shuffle2301(v);
}
FORGE_INLINE B concat_even(B a, B b) {
  return hn::ConcatEven(D(), b, a);
}
FORGE_INLINE B concat_odd(B a, B b) {
  return hn::ConcatOdd(D(), b, a);
}

#endif

/// Two vectors that act as one of twice the width; a holds the lower lanes. Every operation applies to both halves.
template <class Half>
struct Pair {
  Half a, b;
};
template <class H>
FORGE_INLINE Pair<H> add(Pair<H> x, Pair<H> y) {
  return {add(x.a, y.a), add(x.b, y.b)};
}
template <class H>
FORGE_INLINE Pair<H> sub(Pair<H> x, Pair<H> y) {
  return {sub(x.a, y.a), sub(x.b, y.b)};
}
template <class H>
FORGE_INLINE Pair<H> mul(Pair<H> x, Pair<H> y) {
  return {mul(x.a, y.a), mul(x.b, y.b)};
}
template <class H>
FORGE_INLINE Pair<H> div(Pair<H> x, Pair<H> y) {
  return {div(x.a, y.a), div(x.b, y.b)};
}
template <class H>
FORGE_INLINE Pair<H> fma(Pair<H> x, Pair<H> y, Pair<H> z) {
  return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b)};
}
template <class H>
FORGE_INLINE Pair<H> vmin(Pair<H> x, Pair<H> y) {
  return {vmin(x.a, y.a), vmin(x.b, y.b)};
}
template <class H>
FORGE_INLINE Pair<H> vmax(Pair<H> x, Pair<H> y) {
  return {vmax(x.a, y.a), vmax(x.b, y.b)};
}
template <class H>
FORGE_INLINE Pair<H> vabs(Pair<H> x) {
  return {vabs(x.a), vabs(x.b)};
}
template <class H>
FORGE_INLINE Pair<H> select_lt(Pair<H> x, Pair<H> y, Pair<H> yes, Pair<H> no) {
  return {select_lt(x.a, y.a, yes.a, no.a), select_lt(x.b, y.b, yes.b, no.b)};
}
template <class H>
FORGE_INLINE Pair<H> copy_sign(Pair<H> magnitude, Pair<H> sign) {
  return {copy_sign(magnitude.a, sign.a), copy_sign(magnitude.b, sign.b)};
}
template <class H>
FORGE_INLINE Pair<H> exp2_rounded(Pair<H> n) {
  return {exp2_rounded(n.a), exp2_rounded(n.b)};
}
template <class H>
FORGE_INLINE bool all_zero(Pair<H> x) {
  return all_zero(x.a) && all_zero(x.b);
}
template <class H>
FORGE_INLINE float reduce_add(Pair<H> x) {
  return reduce_add(add(x.a, x.b));
}
template <class H>
FORGE_INLINE float reduce_max(Pair<H> x) {
  return reduce_max(vmax(x.a, x.b));
}

template <class H>
FORGE_INLINE Pair<H> max_bits(Pair<H> x, Pair<H> y) {
  return {max_bits(x.a, y.a), max_bits(x.b, y.b)};
}
template <class H>
FORGE_INLINE float reduce_max_bits(Pair<H> x) {
  return reduce_max_bits(max_bits(x.a, x.b));
}

/// Loads, stores and broadcasts of a vector type: a register, or a Pair of half as wide vectors.
template <class T>
struct Make {
  static constexpr std::size_t kCount = kLanes;
  FORGE_INLINE static T set1(float x) { return base_set1(x); }
  FORGE_INLINE static T load(const float* p) { return base_load(p); }
  FORGE_INLINE static T load_f16(const std::uint16_t* p) { return base_load_f16(p); }
  FORGE_INLINE static T load_bf16(const std::uint16_t* p) { return base_load_bf16(p); }
  FORGE_INLINE static T load_i8(const std::int8_t* p) { return base_load_i8(p); }
  FORGE_INLINE static void store(T v, float* p) { base_store(v, p); }
  FORGE_INLINE static void store_half(T v, std::uint16_t* p) { store_f16(v, p); }
  FORGE_INLINE static void store_i8(T v, std::int8_t* p) { base_store_i8(v, p); }
};
template <class H>
struct Make<Pair<H>> {
  static constexpr std::size_t kHalf = Make<H>::kCount, kCount = 2 * kHalf;
  FORGE_INLINE static Pair<H> set1(float x) { return {Make<H>::set1(x), Make<H>::set1(x)}; }
  FORGE_INLINE static Pair<H> load(const float* p) { return {Make<H>::load(p), Make<H>::load(p + kHalf)}; }
  FORGE_INLINE static Pair<H> load_f16(const std::uint16_t* p) {
    return {Make<H>::load_f16(p), Make<H>::load_f16(p + kHalf)};
  }
  FORGE_INLINE static Pair<H> load_bf16(const std::uint16_t* p) {
    return {Make<H>::load_bf16(p), Make<H>::load_bf16(p + kHalf)};
  }
  FORGE_INLINE static Pair<H> load_i8(const std::int8_t* p) {
    return {Make<H>::load_i8(p), Make<H>::load_i8(p + kHalf)};
  }
  FORGE_INLINE static void store(Pair<H> v, float* p) {
    Make<H>::store(v.a, p);
    Make<H>::store(v.b, p + kHalf);
  }
  FORGE_INLINE static void store_half(Pair<H> v, std::uint16_t* p) {
    Make<H>::store_half(v.a, p);
    Make<H>::store_half(v.b, p + kHalf);
  }
  FORGE_INLINE static void store_i8(Pair<H> v, std::int8_t* p) {
    Make<H>::store_i8(v.a, p);
    Make<H>::store_i8(v.b, p + kHalf);
  }
};

/// The vector type with 16 lanes, for a class whose register B has `Lanes` floats: B itself, or two or four of them.
template <std::size_t Lanes>
struct SixteenLanes;
template <>
struct SixteenLanes<16> {
  using Type = B;
};
template <>
struct SixteenLanes<8> {
  using Type = Pair<B>;
};
template <>
struct SixteenLanes<4> {
  using Type = Pair<Pair<B>>;
};
using V = SixteenLanes<kLanes>::Type;
using M = Make<V>;
inline constexpr std::size_t kVectorsHeld = kRegisters * kLanes / 16;  ///< number of V that fit into the registers

FORGE_INLINE V zero() {
  return M::set1(0.0f);
}
/// Loads the first `count` (< 16) lanes from p and sets the others to 0. Never reads past p[count - 1].
FORGE_INLINE V load_n(const float* p, std::size_t count) {
  float buffer[16] = {};
  std::memcpy(buffer, p, count * sizeof(float));
  return M::load(buffer);
}
/// Stores the first `count` (< 16) lanes.
FORGE_INLINE void store_n(V v, float* p, std::size_t count) {
  float buffer[16];
  M::store(v, buffer);
  std::memcpy(p, buffer, count * sizeof(float));
}
FORGE_INLINE V load_f16_n(const std::uint16_t* p, std::size_t count) {
  std::uint16_t buffer[16] = {};
  std::memcpy(buffer, p, count * sizeof(std::uint16_t));
  return M::load_f16(buffer);
}
/// load, or load_n for a short end of a row.
FORGE_INLINE V load_some(const float* p, std::size_t count) {
  return count >= 16 ? M::load(p) : load_n(p, count);
}
FORGE_INLINE void store_some(V v, float* p, std::size_t count) {
  if (count >= 16)
    M::store(v, p);
  else
    store_n(v, p, count);
}

/// 1.5 * 2^23. A float this large has no fraction bits, so adding it rounds x to the nearest integer, ties to even, and
/// subtracting it again gives that integer. Valid for |x| < 2^22.
inline constexpr float kRounder = 0x1.8p23f;
FORGE_INLINE V round_even(V x) {
  return sub(add(x, M::set1(kRounder)), M::set1(kRounder));
}

/// The lowest x with e^x != 0: results below the smallest normal float are 0 here.
inline constexpr float kExpLowest = -87.33f;
/// e^x for x in [kExpLowest, 88.37]. x = n ln 2 + r, where n ln 2 is subtracted in two parts (Cody and Waite); e^r is a
/// Taylor polynomial of degree 7 on [-ln2/2, ln2/2] with a truncation error below 2^-27; the result is e^r 2^n.
FORGE_INLINE V exp_in_range(V x) {
  const V n_and_rounder = add(mul(x, M::set1(0x1.715476p0f)), M::set1(kRounder));
  const V n = sub(n_and_rounder, M::set1(kRounder));
  V r = fma(n, M::set1(-0x1.62e4p-1f), x);
  r = fma(n, M::set1(-0x1.7f7d1cp-20f), r);
  V p = M::set1(0x1.a01a02p-13f);
  p = fma(p, r, M::set1(0x1.6c16c2p-10f));
  p = fma(p, r, M::set1(0x1.111112p-7f));
  p = fma(p, r, M::set1(0x1.555556p-5f));
  p = fma(p, r, M::set1(0x1.555556p-3f));
  p = fma(p, r, M::set1(0.5f));
  p = fma(mul(p, r), r, r);
  p = add(p, M::set1(1.0f));
  return mul(p, exp2_rounded(n_and_rounder));
}
/// e^x within 2 ulp. It is 0 below kExpLowest, stays at e^88.37 above 88.37, and is NaN for NaN.
FORGE_INLINE V exp(V x) {
  const V lowest = M::set1(kExpLowest);
  const V bounded = vmin(M::set1(88.37f), vmax(lowest, x));  // x second: NaN passes
  return select_lt(x, lowest, zero(), exp_in_range(bounded));
}
/// e^x for x <= 0, without the clamps: where x is below the range, select_lt discards the result of exp_in_range.
FORGE_INLINE V exp_of_negative(V x) {
  return select_lt(x, M::set1(kExpLowest), zero(), exp_in_range(x));
}
FORGE_INLINE float exp(float x) {
  float lanes[16];
  M::store(exp(M::set1(x)), lanes);
  return lanes[0];
}

/// tanh within a few ulp. |x| < 0.3: odd Taylor series, truncation error below 2^-28. Otherwise 1 - 2 / (e^2|x| + 1)
/// with the sign of x.
FORGE_INLINE V tanh(V x) {
  const V z = mul(x, x);
  V series = M::set1(-0x1.226e36p-7f);                // -1382/155925
  series = fma(series, z, M::set1(0x1.664f48p-6f));   // 62/2835
  series = fma(series, z, M::set1(-0x1.ba1ba2p-5f));  // -17/315
  series = fma(series, z, M::set1(0x1.111112p-3f));   // 2/15
  series = fma(series, z, M::set1(-0x1.555556p-2f));  // -1/3
  const V small = fma(mul(series, z), x, x);
  const V magnitude = vabs(x);
  const V large = sub(M::set1(1.0f), div(M::set1(2.0f), add(exp(add(magnitude, magnitude)), M::set1(1.0f))));
  return select_lt(magnitude, M::set1(0.3f), small, copy_sign(large, x));
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
