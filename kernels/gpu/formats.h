#pragma once
// Weight formats in the layout `planes` (kernels/quant/planes.h), and the activations that they are multiplied with.
// Matmul kernels are templates over a format. A lane processes a weight row in units, here of 16 bytes (codes.h: 32
// columns). A format (WeightQ8_0, WeightCodes, ...) has:
//
//   kRows, kK        the weight is [kRows][kK]
//   kUnits           units in a row
//   kXRowBytes       bytes of a row of activations, or of one of its terms: Q8Rows (activations.h) or f32
//   Unit, XUnit      a unit of a weight and the matching columns of a token, as they are held in registers
//   load_unit, load_x, add   for matmul_rows.h: load both; sum + product of the two
//   kUnitColumns     for matmul_tiles.h: columns of a unit
//   XHalf            for matmul_tiles.h: 16 columns of a token
//   expand           for matmul_tiles.h: a unit, or 16 columns of a token, dequantised to pairs of 16-bit numbers, in
//                    order. Numbers are TileBf16 or ScaledF16; F16 and BF16 weights have their own
//   element          one element as a float, for embeddings
//
// Products: Q8_0, Q4_0 and Q4_1 use exact int8 dots with quantised activations, scaled in f32; F32, F16 and BF16 use
// f32 multiply-adds with f32 activations.

#include "kernels/gpu/activations.h"

namespace forge::gpu {

/// 16 bytes of a row, and the f16 scale of their block (low half) and its f16 minimum, if any (high half).
struct WeightUnit {
  U32x4 quants;
  u32 scales;
};

/// The number of a unit in a weight whose rows have `units`. In 32 bits: the address of a unit is then one instruction.
FORGE_DEVICE constexpr u32 unit_number(int row, int units, int unit) {
  return static_cast<u32>(row) * static_cast<u32>(units) + static_cast<u32>(unit);
}

/// sum + dot product of 16 signed bytes; exact.
FORGE_DEVICE i32 dot16(const U32x4& a, const U32x4& b, i32 sum) {
  FORGE_UNROLL
  for (int i = 0; i < 4; ++i) sum = dot4(a.at[i], b.at[i], sum);
  return sum;
}

/// The numbers of matrix tiles with quantised weights. pair() rounds two weights and packs them, x_pair() two
/// activations; a weight is multiplied by kWeight before and an activation by kX, whose product is 1.
struct TileBf16 {
  static constexpr bool kIsF16 = false;
  static constexpr float kWeight = 1.0f, kX = 1.0f;
  FORGE_DEVICE static u32 pair(float low, float high) { return bf16_pair(low, high); }
  FORGE_DEVICE static u32 x_pair(float low, float high) { return bf16_pair(low, high); }
};
/// F16 has three more bits and packed arithmetic (expand_bytes), but a narrow range. The factors move it to where the
/// numbers are: activations up to 2^20 (kWideMost), beyond which they are clamped, weights up to 4094.
struct ScaledF16 {
  static constexpr bool kIsF16 = true;
  static constexpr float kWeight = 1.0f / kF16AScale, kX = kF16AScale;
  FORGE_DEVICE static u32 pair(float low, float high) { return f16_pair(low, high); }
  FORGE_DEVICE static u32 x_pair(float low, float high) { return clamped_f16_pair(low, high); }
};
template <bool IsF16>
struct TileNumbers {
  using Type = TileBf16;
};
template <>
struct TileNumbers<true> {
  using Type = ScaledF16;
};
/// The numbers that a matrix tile multiplies.
template <class Tile>
using NumbersOf = typename TileNumbers<Tile::kF16>::Type;

/// True if rows of the weight are in memory as tiles take them; unit_address() then says where a unit is.
template <class Weight>
FORGE_DEVICE constexpr bool is_tile_type() {
  if constexpr (requires { Weight::kIsTileType; })
    return Weight::kIsTileType;
  else
    return false;
}

/// Dequantises four unsigned bytes: pairs[0..1] = Numbers of (byte - Above) * scale + minimum. In F16 two at a time:
/// the difference is exact, scale and minimum are rounded to f16, and so is the result, once.
template <int Above>
FORGE_DEVICE void expand_bytes_f16(u32 bytes, float scale, float minimum, u32* pairs) {
  const u32 offset = f16_pair(-(kHalfBias + Above), -(kHalfBias + Above)), d = f16_pair(scale, scale),
            m = f16_pair(minimum, minimum);
  pairs[0] = fma_halves(add_halves(byte_halves<0>(bytes), offset), d, m);
  pairs[1] = fma_halves(add_halves(byte_halves<1>(bytes), offset), d, m);
}
/// The same without a minimum. In BF16 the fma's product is exact before the rounding, because f16 scales have 11 bits.
template <int Above, class Numbers>
FORGE_DEVICE void expand_bytes(u32 bytes, float scale, u32* pairs) {
  if constexpr (Numbers::kIsF16) return expand_bytes_f16<Above>(bytes, scale, 0.0f, pairs);
  const float offset = -(kByteBias + Above) * scale;
  pairs[0] = Numbers::pair(fma_of(byte_number<0>(bytes), scale, offset), fma_of(byte_number<1>(bytes), scale, offset));
  pairs[1] = Numbers::pair(fma_of(byte_number<2>(bytes), scale, offset), fma_of(byte_number<3>(bytes), scale, offset));
}
/// The same with a minimum, for scales with any number of bits: the offset is subtracted before the multiplication.
template <int Above, class Numbers>
FORGE_DEVICE void expand_bytes(u32 bytes, float scale, float minimum, u32* pairs) {
  if constexpr (Numbers::kIsF16) return expand_bytes_f16<Above>(bytes, scale, minimum, pairs);
  constexpr float kOffset = kByteBias + Above;
  pairs[0] = Numbers::pair(fma_of(byte_number<0>(bytes) - kOffset, scale, minimum),
                           fma_of(byte_number<1>(bytes) - kOffset, scale, minimum));
  pairs[1] = Numbers::pair(fma_of(byte_number<2>(bytes) - kOffset, scale, minimum),
                           fma_of(byte_number<3>(bytes) - kOffset, scale, minimum));
}
/// Turns signed bytes into unsigned bytes that are larger by 128.
FORGE_DEVICE u32 raised(u32 bytes) {
  return bytes ^ 0x80808080u;
}

/// 32 columns of a token: quants of columns 0..15 (low) and 16..31 (high), and scale and sum of each of the two blocks.
struct XPair {
  U32x4 low, high;
  U32x2 meta;
  template <int K>
  FORGE_DEVICE static XPair load(const u8* row, int unit) {
    return {load16(row + unit * 32), load16(row + unit * 32 + 16), load8(row + K + unit * 8)};
  }
};

/// 16 columns of a token: one block of quantised activations.
struct QuantisedHalf {
  U32x4 quants;
  u32 meta;
  template <int K>
  FORGE_DEVICE static QuantisedHalf load(const u8* row, int half) {
    return {load16(row + half * 16), gpu::load(reinterpret_cast<const u32*>(row + K) + half)};
  }
  template <class Numbers>
  FORGE_DEVICE void expand(u32 (&pairs)[8]) const {
    const float scale = bf16_scale(meta) * Numbers::kX, offset = -(kByteBias + 128) * scale;
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const u32 bytes = raised(quants.at[i]);
      pairs[2 * i] =
          Numbers::x_pair(fma_of(byte_number<0>(bytes), scale, offset), fma_of(byte_number<1>(bytes), scale, offset));
      pairs[2 * i + 1] =
          Numbers::x_pair(fma_of(byte_number<2>(bytes), scale, offset), fma_of(byte_number<3>(bytes), scale, offset));
    }
  }
};

/// The same of q16a_16: the block in each of the two terms.
struct WideHalf {
  QuantisedHalf upper, lower;
  template <int K>
  FORGE_DEVICE static WideHalf load(const u8* row, int half) {
    return {QuantisedHalf::load<K>(row, half), QuantisedHalf::load<K>(row + Q8Rows<K>::kRowBytes, half)};
  }
  /// Numbers i of four bytes of both terms, as a float. All but the last sum is exact.
  template <int I>
  FORGE_DEVICE static float number(u32 upper, u32 lower, float upper_scale, float lower_scale) {
    constexpr float kOffset = kByteBias + 128;
    return fma_of(byte_number<I>(upper) - kOffset, upper_scale, (byte_number<I>(lower) - kOffset) * lower_scale);
  }
  template <class Numbers>
  FORGE_DEVICE void expand(u32 (&pairs)[8]) const {
    const float first = bf16_scale(upper.meta) * ScaledF16::kX, second = bf16_scale(lower.meta) * ScaledF16::kX;
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const u32 high = raised(upper.quants.at[i]), low = raised(lower.quants.at[i]);
      pairs[2 * i] = ScaledF16::pair(number<0>(high, low, first, second), number<1>(high, low, first, second));
      pairs[2 * i + 1] = ScaledF16::pair(number<2>(high, low, first, second), number<3>(high, low, first, second));
    }
  }
};

/// Q8_0: value = d * q, blocks of 32. Planes: [Rows][K] int8, then [Rows][K / 32] f16. A unit is half a block.
template <int Rows, int K>
struct WeightQ8_0 {
  static_assert(K % 32 == 0, "Q8_0: k must be a multiple of 32");
  static constexpr int kRows = Rows, kK = K, kUnits = K / 16;
  static constexpr u64 kScales = static_cast<u64>(Rows) * K;
  static constexpr u64 kXRowBytes = Q8Rows<K>::kRowBytes;
  using Unit = WeightUnit;

  struct XUnit {
    U32x4 quants;
    float scale;
  };
  FORGE_DEVICE static WeightUnit load_unit(const u8* weights, int row, int unit) {
    const u16* scales = reinterpret_cast<const u16*>(weights + kScales);
    const u32 part = unit_number(row, kUnits, unit);
    return {load16_once(weights + static_cast<u64>(part) * 16), load(scales + part / 2)};
  }
  FORGE_DEVICE static XUnit load_x(const u8* row, int unit) {
    return {load16(row + unit * 16), bf16_scale(load(reinterpret_cast<const u32*>(row + K) + unit))};
  }
  FORGE_DEVICE static float add(float sum, const WeightUnit& w, const XUnit& x) {
    const float scale = f32_of_f16(static_cast<u16>(w.scales)) * x.scale;
    return fma_of(scale, static_cast<float>(dot16(w.quants, x.quants, 0)), sum);
  }
  static constexpr int kUnitColumns = 16;
  using XHalf = QuantisedHalf;
  template <class Numbers>
  FORGE_DEVICE static void expand(const WeightUnit& w, u32 (&pairs)[8]) {
    const float d = f32_of_f16(static_cast<u16>(w.scales)) * Numbers::kWeight;
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) expand_bytes<128, Numbers>(raised(w.quants.at[i]), d, pairs + 2 * i);
  }
  FORGE_DEVICE static float element(const u8* weights, int row, int k) {
    const u8 quant = load(weights + static_cast<u64>(row) * K + k);
    const u16* scales = reinterpret_cast<const u16*>(weights + kScales);
    return f32_of_f16(load(scales + static_cast<u64>(row) * (K / 32) + k / 32)) *
           static_cast<float>(static_cast<i8>(quant));
  }
};

/// Q4_0: value = d * (nibble - 8); Q4_1: value = d * nibble + m. A unit is a block of 32 in 16 bytes: byte j has column
/// j in its low nibble and column 16 + j in its high nibble. Scales: f16 d, or f16 d and m, per block.
template <int Rows, int K, bool HasMinimum>
struct WeightQ4 {
  static_assert(K % 32 == 0, "Q4_0 and Q4_1: k must be a multiple of 32");
  static constexpr int kRows = Rows, kK = K, kUnits = K / 32;
  static constexpr u64 kScales = static_cast<u64>(Rows) * (K / 2);
  static constexpr u64 kXRowBytes = Q8Rows<K>::kRowBytes;
  using Unit = WeightUnit;
  using XUnit = XPair;

  FORGE_DEVICE static u32 load_scales(const u8* weights, int row, int block) {
    const u32 index = unit_number(row, kUnits, block);
    if constexpr (HasMinimum)
      return load(reinterpret_cast<const u32*>(weights + kScales) + index);
    else
      return load(reinterpret_cast<const u16*>(weights + kScales) + index);
  }
  FORGE_DEVICE static WeightUnit load_unit(const u8* weights, int row, int unit) {
    return {load16_once(weights + static_cast<u64>(unit_number(row, kUnits, unit)) * 16),
            load_scales(weights, row, unit)};
  }
  FORGE_DEVICE static XUnit load_x(const u8* row, int unit) { return XPair::load<K>(row, unit); }
  /// With low and high the dots of the nibbles with the quants of the two halves, s0 and s1 the halves' scales and sum0
  /// and sum1 their sums of quants:
  ///   Q4_0: d * (s0 * (low - 8 * sum0) + s1 * (high - 8 * sum1))
  ///   Q4_1: d * (s0 * low + s1 * high) + m * (s0 * sum0 + s1 * sum1)
  /// The integers are exact.
  FORGE_DEVICE static float add(float sum, const WeightUnit& w, const XUnit& x) {
    i32 low = 0, high = 0;
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) {
      low = dot4(w.quants.at[i] & 0x0f0f0f0fu, x.low.at[i], low);
      high = dot4(w.quants.at[i] >> 4 & 0x0f0f0f0fu, x.high.at[i], high);
    }
    const float s0 = bf16_scale(x.meta.at[0]), s1 = bf16_scale(x.meta.at[1]);
    const i32 sum0 = quant_sum(x.meta.at[0]), sum1 = quant_sum(x.meta.at[1]);
    const float d = f32_of_f16(static_cast<u16>(w.scales));
    if constexpr (HasMinimum) {
      const float m = f32_of_f16(static_cast<u16>(w.scales >> 16));
      sum = fma_of(m, fma_of(s0, static_cast<float>(sum0), s1 * static_cast<float>(sum1)), sum);
    } else {
      low -= 8 * sum0;
      high -= 8 * sum1;
    }
    return fma_of(d, fma_of(s0, static_cast<float>(low), s1 * static_cast<float>(high)), sum);
  }
  static constexpr int kUnitColumns = 32;
  using XHalf = QuantisedHalf;
  template <class Numbers>
  FORGE_DEVICE static void expand(const WeightUnit& w, u32 (&pairs)[16]) {
    const float d = f32_of_f16(static_cast<u16>(w.scales)) * Numbers::kWeight;
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const u32 low = w.quants.at[i] & 0x0f0f0f0fu, high = w.quants.at[i] >> 4 & 0x0f0f0f0fu;
      if constexpr (HasMinimum) {
        const float m = f32_of_f16(static_cast<u16>(w.scales >> 16)) * Numbers::kWeight;
        expand_bytes<0, Numbers>(low, d, m, pairs + 2 * i);
        expand_bytes<0, Numbers>(high, d, m, pairs + 8 + 2 * i);
      } else {
        expand_bytes<8, Numbers>(low, d, pairs + 2 * i);
        expand_bytes<8, Numbers>(high, d, pairs + 8 + 2 * i);
      }
    }
  }
  FORGE_DEVICE static float element(const u8* weights, int row, int k) {
    const u8 pair = load(weights + static_cast<u64>(row) * (K / 2) + k / 32 * 16 + k % 16);
    const u32 scales = load_scales(weights, row, k / 32);
    const int nibble = k % 32 < 16 ? pair & 15 : pair >> 4;
    const float d = f32_of_f16(static_cast<u16>(scales));
    if constexpr (HasMinimum)
      return fma_of(d, static_cast<float>(nibble), f32_of_f16(static_cast<u16>(scales >> 16)));
    else
      return d * static_cast<float>(nibble - 8);
  }
};
template <int Rows, int K>
using WeightQ4_0 = WeightQ4<Rows, K, false>;
template <int Rows, int K>
using WeightQ4_1 = WeightQ4<Rows, K, true>;

// Element types: Bits is the storage, to_f32 converts, pair rounds two floats and packs them (for matrix tiles).

struct F32 {
  using Bits = u32;
  FORGE_DEVICE static float to_f32(u32 bits) { return __builtin_bit_cast(float, bits); }
};
struct F16 {
  using Bits = u16;
  FORGE_DEVICE static u32 pair(float low, float high) { return clamped_f16_pair(low, high); }
  FORGE_DEVICE static float to_f32(u16 bits) { return f32_of_f16(bits); }
};
struct Bf16 {
  using Bits = u16;
  FORGE_DEVICE static u32 pair(float low, float high) { return bf16_pair(low, high); }
  FORGE_DEVICE static float to_f32(u16 bits) { return __builtin_bit_cast(float, static_cast<u32>(bits) << 16); }
};

/// The elements of a unit of 16 bytes, as floats.
template <class Element>
struct Elements {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(typename Element::Bits));
  float at[kCount];
};
template <class Element>
FORGE_DEVICE Elements<Element> elements_of(const U32x4& packed) {
  Elements<Element> out;
  FORGE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(typename Element::Bits) == 2) {
      out.at[2 * i] = Element::to_f32(static_cast<u16>(packed.at[i]));
      out.at[2 * i + 1] = Element::to_f32(static_cast<u16>(packed.at[i] >> 16));
    } else {
      out.at[i] = Element::to_f32(packed.at[i]);
    }
  }
  return out;
}

/// 16 columns of a token in f32, for weights of type Element.
template <class Element>
struct FloatHalf {
  F32x4 at[4];
  template <int K>
  FORGE_DEVICE static FloatHalf load(const u8* row, int half) {
    FloatHalf out;
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) out.at[i] = __builtin_bit_cast(F32x4, load16(row + half * 64 + i * 16));
    return out;
  }
  /// The weight's own numbers, whatever others are.
  template <class>
  FORGE_DEVICE void expand(u32 (&pairs)[8]) const {
    FORGE_UNROLL
    for (int i = 0; i < 8; ++i) pairs[i] = Element::pair(at[i / 2].at[i % 2 * 2], at[i / 2].at[i % 2 * 2 + 1]);
  }
};

/// F32, F16 or BF16 weights with f32 activations. Planes: [Rows][K] elements, as in the file.
template <class Element, int Rows, int K>
struct WeightFloat {
  using Bits = typename Element::Bits;
  static constexpr int kCount = Elements<Element>::kCount;
  static_assert(K % kCount == 0, "k must be a multiple of a unit of 16 bytes");
  static constexpr int kRows = Rows, kK = K, kUnits = K / kCount;
  static constexpr u64 kXRowBytes = static_cast<u64>(K) * 4;
  using Unit = WeightUnit;
  using XUnit = Elements<Element>;

  FORGE_DEVICE static WeightUnit load_unit(const u8* weights, int row, int unit) {
    return {load16_once(unit_address(weights, row, unit)), 0};
  }
  FORGE_DEVICE static XUnit load_x(const u8* row, int unit) {
    XUnit out;
    FORGE_UNROLL
    for (int part = 0; part < kCount / 4; ++part) {
      const U32x4 four = load16(row + (unit * kCount + part * 4) * 4);
      FORGE_UNROLL
      for (int i = 0; i < 4; ++i) out.at[part * 4 + i] = __builtin_bit_cast(float, four.at[i]);
    }
    return out;
  }
  FORGE_DEVICE static float add(float sum, const WeightUnit& w, const XUnit& x) {
    const auto values = elements_of<Element>(w.quants);
    FORGE_UNROLL
    for (int i = 0; i < kCount; ++i) sum = fma_of(values.at[i], x.at[i], sum);
    return sum;
  }
  static constexpr int kUnitColumns = kCount;
  static constexpr bool kIsTileType = sizeof(Bits) == 2;
  FORGE_DEVICE static const u8* unit_address(const u8* weights, int row, int unit) {
    return weights + (static_cast<u64>(row) * K + unit * kCount) * sizeof(Bits);
  }
  using XHalf = FloatHalf<Element>;
  /// The weight's own numbers, whatever others are.
  template <class>
  FORGE_DEVICE static void expand(const Unit& w, u32 (&pairs)[kCount / 2]) {
    static_assert(sizeof(Bits) == 2, "only 16-bit weights can be expanded");
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) pairs[i] = w.quants.at[i];
  }
  FORGE_DEVICE static float element(const u8* weights, int row, int k) {
    return Element::to_f32(load(reinterpret_cast<const Bits*>(weights) + static_cast<u64>(row) * K + k));
  }
};
template <int Rows, int K>
using WeightF32 = WeightFloat<F32, Rows, K>;
template <int Rows, int K>
using WeightF16 = WeightFloat<F16, Rows, K>;
template <int Rows, int K>
using WeightBf16 = WeightFloat<Bf16, Rows, K>;

}  // namespace forge::gpu
