#pragma once
// Lanes: operations of a CPU class on rows of packed weights. A group of layout x16 has 16 rows; one register of a
// class holds kRows of them (4, 8 or 16). NEON combines four registers to 16 rows.
//   I  4 bytes of each of kRows rows, i.e. one word of kRows rows; also used as one 32-bit integer per row
//   F  one float per row
// Lanes is the `Ops` of kernels/quant/x16_codes.h, extended by integer dots (Dot) and the float arithmetic of a matmul.
// All classes define the same operations:
//   load, store         4 bytes per row
//   bytes               one byte per row, widened to 32 bits
//   words, all          the same 32-bit integer (float) in every row
//   both, either        bitwise AND, OR
//   plus, saturating_sub_one      32-bit a + b; a - 1, but 0 stays 0
//   sub_bytes          a - b in each byte
//   left, right         shift by n, possibly across bytes within a word: callers mask the bits that move
//   left_word, right_signed  exact 32-bit shifts; the right one keeps the sign
//   lookup              replaces each byte (0..15) with the table's entry
//   to_float, as_float  converts int32 values; reinterprets their bits
//   halves              loads one f16 per row as float
//   times, fused        a * b; a * b + c with one rounding (kGeneric: two)

#include "kernels/cpu/simd-inl.h"

#if defined(FORGE_CPU_GENERIC)
// no intrinsics: the compiler's vector types
#elif defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

namespace forge::cpu::FORGE_CPU_NAMESPACE {

#if defined(FORGE_CPU_GENERIC)

struct Lanes {
  using I = std::uint32_t __attribute__((vector_size(16)));
  using Signed = std::int32_t __attribute__((vector_size(16)));
  using Bytes = std::uint8_t __attribute__((vector_size(16)));
  using F = float __attribute__((vector_size(16)));
  using Table = const std::uint8_t*;
  static constexpr int kRows = 4;
  FORGE_INLINE static I load(const std::uint8_t* p) {
    I v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  FORGE_INLINE static void store(std::uint8_t* p, I v) { std::memcpy(p, &v, sizeof(v)); }
  FORGE_INLINE static I bytes(const std::uint8_t* p) { return I{p[0], p[1], p[2], p[3]}; }
  FORGE_INLINE static I words(std::int32_t w) { return I{} + static_cast<std::uint32_t>(w); }
  FORGE_INLINE static I none() { return I{}; }
  FORGE_INLINE static I and_(I a, I b) { return a & b; }
  FORGE_INLINE static I or_(I a, I b) { return a | b; }
  FORGE_INLINE static I plus(I a, I b) { return a + b; }
  FORGE_INLINE static I saturating_sub_one(I a) { return a - (I)(a != 0 ? I{} + 1 : I{}); }
  FORGE_INLINE static I sub_bytes(I a, I b) { return (I)((Bytes)a - (Bytes)b); }
  template <int n>
  FORGE_INLINE static I left(I a) {
    return a << n;
  }
  template <int n>
  FORGE_INLINE static I right(I a) {
    return a >> n;
  }
  template <int n>
  FORGE_INLINE static I left_word(I a) {
    return a << n;
  }
  template <int n>
  FORGE_INLINE static I right_signed(I a) {
    return (I)((Signed)a >> n);
  }
  FORGE_INLINE static Table table(const std::uint8_t* levels) { return levels; }
  FORGE_INLINE static I lookup(Table levels, I codes) {
    std::uint8_t out[16];
    store(out, codes);
    for (auto& byte : out) byte = levels[byte];
    return load(out);
  }
  FORGE_INLINE static F to_float(I a) { return __builtin_convertvector((Signed)a, F); }
  FORGE_INLINE static F as_float(I a) { return (F)a; }
  FORGE_INLINE static F all(float x) { return F{x, x, x, x}; }
  FORGE_INLINE static F halves(const std::uint8_t* p) {
    std::uint16_t h[4];
    std::memcpy(h, p, sizeof(h));
    return F{quant::f32_of_f16(h[0]), quant::f32_of_f16(h[1]), quant::f32_of_f16(h[2]), quant::f32_of_f16(h[3])};
  }
  FORGE_INLINE static F load_floats(const float* p) { return base_load(p); }
  FORGE_INLINE static void store_floats(float* p, F v) { base_store(v, p); }
  FORGE_INLINE static F times(F a, F b) { return a * b; }
  FORGE_INLINE static F fused(F a, F b, F c) { return fma(a, b, c); }
};

#elif defined(__aarch64__)

/// Four registers that act as one: rows 0..3, 4..7, 8..11, 12..15.
template <class R>
struct Four {
  R a, b, c, d;
};
/// op applied to each register.
template <class R, class Op>
FORGE_INLINE auto each(const Four<R>& x, Op op) {
  return Four<decltype(op(x.a))>{op(x.a), op(x.b), op(x.c), op(x.d)};
}
/// op applied to each pair of registers.
template <class R, class S, class Op>
FORGE_INLINE auto each(const Four<R>& x, const Four<S>& y, Op op) {
  return Four<decltype(op(x.a, y.a))>{op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};
}
// `expression` of v, the register of x (and w, that of y), for all four registers.
#define FORGE_QUAD(x, expression) each(x, [&](auto v) FORGE_INLINE_BODY { return expression; })
#define FORGE_QUADS(x, y, expression) each(x, y, [&](auto v, auto w) FORGE_INLINE_BODY { return expression; })

/// sum + dot of 4 signed bytes per lane. Without SDOT pairs of products are added in 16 bits, which fits: 2 * 128 * 127
/// = 32512.
FORGE_INLINE int32x4_t add_dots(int32x4_t sum, int8x16_t w, int8x16_t x) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sum, w, x);
#else
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
  return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}
FORGE_INLINE int8x16_t all_words(std::int32_t w) {
  return vreinterpretq_s8_s32(vdupq_n_s32(w));
}

struct Lanes {
  using I = Four<uint8x16_t>;
  using F = Four<float32x4_t>;
  using Table = uint8x16_t;
  static constexpr int kRows = 16;
  FORGE_INLINE static I load(const std::uint8_t* p) {
    return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
  }
  FORGE_INLINE static void store(std::uint8_t* p, const I& v) {
    vst1q_u8(p, v.a);
    vst1q_u8(p + 16, v.b);
    vst1q_u8(p + 32, v.c);
    vst1q_u8(p + 48, v.d);
  }
  FORGE_INLINE static I bytes(const std::uint8_t* p) {
    const uint8x16_t line = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(line)), high = vmovl_high_u8(line);
    const Four<uint32x4_t> wide{vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)),
                                vmovl_high_u16(high)};
    return FORGE_QUAD(wide, vreinterpretq_u8_u32(v));
  }
  FORGE_INLINE static I same(uint8x16_t v) { return {v, v, v, v}; }
  FORGE_INLINE static I words(std::int32_t w) { return same(vreinterpretq_u8_s8(all_words(w))); }
  FORGE_INLINE static I none() { return same(vdupq_n_u8(0)); }
  FORGE_INLINE static I and_(const I& a, const I& b) { return FORGE_QUADS(a, b, vandq_u8(v, w)); }
  FORGE_INLINE static I or_(const I& a, const I& b) { return FORGE_QUADS(a, b, vorrq_u8(v, w)); }
  FORGE_INLINE static I plus(const I& a, const I& b) {
    return FORGE_QUADS(a, b, vreinterpretq_u8_u32(vaddq_u32(vreinterpretq_u32_u8(v), vreinterpretq_u32_u8(w))));
  }
  FORGE_INLINE static I saturating_sub_one(const I& a) {
    return FORGE_QUAD(a, vreinterpretq_u8_u32(vqsubq_u32(vreinterpretq_u32_u8(v), vdupq_n_u32(1))));
  }
  FORGE_INLINE static I sub_bytes(const I& a, const I& b) { return FORGE_QUADS(a, b, vsubq_u8(v, w)); }
  // NEON shifts bytes instead of words here; callers mask the bits that would move between bytes
  template <int n>
  FORGE_INLINE static I left(const I& a) {
    return FORGE_QUAD(a, vshlq_n_u8(v, n));
  }
  template <int n>
  FORGE_INLINE static I right(const I& a) {
    if constexpr (n == 0)
      return a;
    else
      return FORGE_QUAD(a, vshrq_n_u8(v, n));
  }
  template <int n>
  FORGE_INLINE static I left_word(const I& a) {
    return FORGE_QUAD(a, vreinterpretq_u8_u32(vshlq_n_u32(vreinterpretq_u32_u8(v), n)));
  }
  template <int n>
  FORGE_INLINE static I right_signed(const I& a) {
    return FORGE_QUAD(a, vreinterpretq_u8_s32(vshrq_n_s32(vreinterpretq_s32_u8(v), n)));
  }
  FORGE_INLINE static Table table(const std::uint8_t* levels) { return vld1q_u8(levels); }
  FORGE_INLINE static I lookup(Table levels, const I& codes) { return FORGE_QUAD(codes, vqtbl1q_u8(levels, v)); }
  FORGE_INLINE static F to_float(const I& a) { return FORGE_QUAD(a, vcvtq_f32_s32(vreinterpretq_s32_u8(v))); }
  FORGE_INLINE static F as_float(const I& a) { return FORGE_QUAD(a, vreinterpretq_f32_u8(v)); }
  FORGE_INLINE static F all(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {v, v, v, v};
  }
  FORGE_INLINE static F halves(const std::uint8_t* p) {
    const Four<uint8x8_t> bits{vld1_u8(p), vld1_u8(p + 8), vld1_u8(p + 16), vld1_u8(p + 24)};
    return FORGE_QUAD(bits, vcvt_f32_f16(vreinterpret_f16_u8(v)));
  }
  FORGE_INLINE static F load_floats(const float* p) {
    return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
  }
  FORGE_INLINE static void store_floats(float* p, const F& v) {
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
  }
  FORGE_INLINE static F times(const F& a, const F& b) { return FORGE_QUADS(a, b, vmulq_f32(v, w)); }
  FORGE_INLINE static F fused(const F& a, const F& b, const F& c) {
    return {vfmaq_f32(c.a, a.a, b.a), vfmaq_f32(c.b, a.b, b.b), vfmaq_f32(c.c, a.c, b.c), vfmaq_f32(c.d, a.d, b.d)};
  }
};

#elif defined(__AVX512BW__)

struct Lanes {
  using I = __m512i;
  using F = __m512;
  using Table = __m512i;
  static constexpr int kRows = 16;
  FORGE_INLINE static I load(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
  FORGE_INLINE static void store(std::uint8_t* p, I v) { _mm512_storeu_si512(p, v); }
  FORGE_INLINE static I bytes(const std::uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  FORGE_INLINE static I words(std::int32_t w) { return _mm512_set1_epi32(w); }
  FORGE_INLINE static I none() { return _mm512_setzero_si512(); }
  FORGE_INLINE static I and_(I a, I b) { return _mm512_and_si512(a, b); }
  FORGE_INLINE static I or_(I a, I b) { return _mm512_or_si512(a, b); }
  FORGE_INLINE static I plus(I a, I b) { return _mm512_add_epi32(a, b); }
  FORGE_INLINE static I saturating_sub_one(I a) { return _mm512_subs_epu16(a, _mm512_set1_epi32(1)); }
  FORGE_INLINE static I sub_bytes(I a, I b) { return _mm512_sub_epi8(a, b); }
  template <int n>
  FORGE_INLINE static I left(I a) {
    return n == 0 ? a : _mm512_slli_epi16(a, n);
  }
  template <int n>
  FORGE_INLINE static I right(I a) {
    return n == 0 ? a : _mm512_srli_epi16(a, n);
  }
  template <int n>
  FORGE_INLINE static I left_word(I a) {
    return _mm512_slli_epi32(a, n);
  }
  template <int n>
  FORGE_INLINE static I right_signed(I a) {
    return _mm512_srai_epi32(a, n);
  }
  FORGE_INLINE static Table table(const std::uint8_t* levels) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)));
  }
  FORGE_INLINE static I lookup(Table levels, I codes) { return _mm512_shuffle_epi8(levels, codes); }
  FORGE_INLINE static I pairs(I u, I s) { return _mm512_maddubs_epi16(u, s); }
  FORGE_INLINE static I add_16(I a, I b) { return _mm512_add_epi16(a, b); }
  FORGE_INLINE static I widen(I a, I factor) { return _mm512_madd_epi16(a, factor); }
  FORGE_INLINE static I shorts(short w) { return _mm512_set1_epi16(w); }
  FORGE_INLINE static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  FORGE_INLINE static F as_float(I a) { return _mm512_castsi512_ps(a); }
  FORGE_INLINE static F all(float x) { return _mm512_set1_ps(x); }
  FORGE_INLINE static F halves(const std::uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  FORGE_INLINE static F load_floats(const float* p) { return _mm512_loadu_ps(p); }
  FORGE_INLINE static void store_floats(float* p, F v) { _mm512_storeu_ps(p, v); }
  FORGE_INLINE static F times(F a, F b) { return _mm512_mul_ps(a, b); }
  FORGE_INLINE static F fused(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
};

#else

struct Lanes {
  using I = __m256i;
  using F = __m256;
  using Table = __m256i;
  static constexpr int kRows = 8;
  FORGE_INLINE static I load(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  FORGE_INLINE static void store(std::uint8_t* p, I v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  FORGE_INLINE static I bytes(const std::uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  FORGE_INLINE static I words(std::int32_t w) { return _mm256_set1_epi32(w); }
  FORGE_INLINE static I none() { return _mm256_setzero_si256(); }
  FORGE_INLINE static I and_(I a, I b) { return _mm256_and_si256(a, b); }
  FORGE_INLINE static I or_(I a, I b) { return _mm256_or_si256(a, b); }
  FORGE_INLINE static I plus(I a, I b) { return _mm256_add_epi32(a, b); }
  FORGE_INLINE static I saturating_sub_one(I a) { return _mm256_subs_epu16(a, _mm256_set1_epi32(1)); }
  FORGE_INLINE static I sub_bytes(I a, I b) { return _mm256_sub_epi8(a, b); }
  template <int n>
  FORGE_INLINE static I left(I a) {
    return n == 0 ? a : _mm256_slli_epi16(a, n);
  }
  template <int n>
  FORGE_INLINE static I right(I a) {
    return n == 0 ? a : _mm256_srli_epi16(a, n);
  }
  template <int n>
  FORGE_INLINE static I left_word(I a) {
    return _mm256_slli_epi32(a, n);
  }
  template <int n>
  FORGE_INLINE static I right_signed(I a) {
    return _mm256_srai_epi32(a, n);
  }
  FORGE_INLINE static Table table(const std::uint8_t* levels) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)));
  }
  FORGE_INLINE static I lookup(Table levels, I codes) { return _mm256_shuffle_epi8(levels, codes); }
  FORGE_INLINE static I pairs(I u, I s) { return _mm256_maddubs_epi16(u, s); }
  FORGE_INLINE static I magnitudes(I a) { return _mm256_abs_epi8(a); }
  FORGE_INLINE static I with_signs(I a, I b) { return _mm256_sign_epi8(a, b); }
  FORGE_INLINE static I add_16(I a, I b) { return _mm256_add_epi16(a, b); }
  FORGE_INLINE static I widen(I a, I factor) { return _mm256_madd_epi16(a, factor); }
  FORGE_INLINE static I shorts(short w) { return _mm256_set1_epi16(w); }
  FORGE_INLINE static F to_float(I a) { return _mm256_cvtepi32_ps(a); }
  FORGE_INLINE static F as_float(I a) { return _mm256_castsi256_ps(a); }
  FORGE_INLINE static F all(float x) { return _mm256_set1_ps(x); }
  FORGE_INLINE static F halves(const std::uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  FORGE_INLINE static F load_floats(const float* p) { return _mm256_loadu_ps(p); }
  FORGE_INLINE static void store_floats(float* p, F v) { _mm256_storeu_ps(p, v); }
  FORGE_INLINE static F times(F a, F b) { return _mm256_mul_ps(a, b); }
  FORGE_INLINE static F fused(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
};

#endif

/// Registers of a group's rows that a kernel multiplies together. AVX2's two share each load of x.
inline constexpr int kRowRegisters = Lanes::kRows == 8 ? 2 : 1;

/// What must be subtracted from raw values up to `largest` before Dot::add. NEON's dots are signed by signed, so values
/// above 127 are stored less 128 there; all other classes take unsigned bytes.
constexpr unsigned dot_bias([[maybe_unused]] unsigned largest) {
#if defined(__aarch64__) && !defined(FORGE_CPU_GENERIC)
  return largest > 127 ? 128 : 0;
#else
  return 0;
#endif
}

/// How many words of weight bytes up to `largest` vpmaddubsw can sum in 16 bits, for |x| <= 127: 8 (the words of a
/// 32-column sub-block), 4, 2, 1, or 0 if even a single word could saturate. Classes whose dot adds exactly in 32 bits
/// return 4 for every format, so that all formats share one instantiation.
constexpr int words_in_shorts(unsigned largest) {
#if defined(__AVX512VNNI__) || defined(FORGE_CPU_GENERIC) || defined(__aarch64__)
  return largest > 0 ? 4 : 0;
#else
  const unsigned words = 32767 / (2 * 127 * largest);
  return words >= 8 ? 8 : words >= 4 ? 4 : words >= 2 ? 2 : words >= 1 ? 1 : 0;
#endif
}

/// Keeps a sum from being added in another order: a tree of partial sums needs registers that a tile does not have.
template <class I>
FORGE_INLINE void keep_order([[maybe_unused]] I& sum) {
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(FORGE_CPU_GENERIC)
  asm("" : "+x"(sum));
#endif
}

/// The exact dot of kWords words of unsigned bytes (less dot_bias) by signed bytes, one row per lane. kShorts is
/// words_in_shorts of the format. `sum` may start with another number, which is added.
template <int kShorts, int kWords>
struct Dot {
  using I = Lanes::I;
#if defined(__AVX512VNNI__)
  I sum = Lanes::none();
  FORGE_INLINE void add(int, I u, std::int32_t x) { sum = _mm512_dpbusd_epi32(sum, u, Lanes::words(x)); }
  FORGE_INLINE I total() const { return sum; }
#elif defined(FORGE_CPU_GENERIC)
  I sum = Lanes::none();
  FORGE_INLINE void add(int, I u, std::int32_t x) {
    for (int i = 0; i < 4; ++i)
      sum += ((u >> (8 * i)) & 255u) * static_cast<std::uint32_t>(static_cast<std::int8_t>(x >> (8 * i)));
  }
  FORGE_INLINE I total() const { return sum; }
#elif defined(__aarch64__)
  I sum = Lanes::none();
  FORGE_INLINE void add(int, const I& u, std::int32_t x) {
    const int8x16_t all = all_words(x);
    sum = FORGE_QUADS(sum, u, vreinterpretq_u8_s32(add_dots(vreinterpretq_s32_u8(v), vreinterpretq_s8_u8(w), all)));
  }
  FORGE_INLINE I total() const { return sum; }
#else
  // kShorts 0: a byte is split into two nibbles, low + 16 * high, each with a 16-bit sum: 8 words of 2 * 15 * 127 fit.
  // `sum` then keeps its initial value until total().
  I sum = Lanes::none(), low = Lanes::none(), high = Lanes::none();
  FORGE_INLINE void add(int word, I u, std::int32_t x) {
    const I all = Lanes::words(x);
    if constexpr (kShorts == 0) {
      const I nibble = Lanes::words(0x0f0f0f0f);
      low = Lanes::add_16(low, Lanes::pairs(Lanes::and_(u, nibble), all));
      high = Lanes::add_16(high, Lanes::pairs(Lanes::and_(Lanes::right<4>(u), nibble), all));
    } else {
      low = word % kShorts == 0 ? Lanes::pairs(u, all) : Lanes::add_16(low, Lanes::pairs(u, all));
      keep_order(low);
      if (word % kShorts == kShorts - 1 || word == kWords - 1)
        sum = Lanes::plus(sum, Lanes::widen(low, Lanes::shorts(1)));
    }
  }
  FORGE_INLINE I total() const {
    if constexpr (kShorts != 0) return sum;
    return Lanes::plus(sum, Lanes::plus(Lanes::widen(low, Lanes::shorts(1)), Lanes::widen(high, Lanes::shorts(16))));
  }
#endif
};

/// Calls f.operator()<0>() .. f.operator()<N-1>(), in order.
template <int N, class F>
FORGE_INLINE void unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>)
      FORGE_INLINE_BODY { (f.template operator()<i>(), ...); }(std::make_integer_sequence<int, N>{});
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
