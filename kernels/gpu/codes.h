#pragma once
// Weight formats in planes of codes (kernels/quant/planes_codes.h): the K types, Q5, IQ, MXFP4, ternary and 1-bit
// types, by one template over the type's block in the file. It has the members that formats.h describes. A unit is 32
// columns. In registers it stays packed, as it lies in memory; codes and scales are only unpacked when the unit is
// multiplied, by exact int8 dots with quantised activations, scaled in f32.

#include "kernels/gpu/formats.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/iq4_xs.h"
#include "kernels/quant/mxfp4.h"
#include "kernels/quant/nvfp4.h"
#include "kernels/quant/planes_codes.h"
#include "kernels/quant/q1_0.h"
#include "kernels/quant/q2_0.h"
#include "kernels/quant/q2_k.h"
#include "kernels/quant/q3_k.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_0.h"
#include "kernels/quant/q5_1.h"
#include "kernels/quant/q5_k.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/tq1_0.h"
#include "kernels/quant/tq2_0.h"

namespace forge::gpu {

/// Block: a block type of kernels/quant with a Packing. value = scale * (code - kZero) + minimum; with a table of
/// levels (IQ4, MXFP4) the code is replaced by its level first. kSub columns (16 or 32) share a scale and a minimum.
template <class Block, int Rows, int K>
struct WeightCodes {
  using Planes = quant::PlanesCodes<Block>;
  static constexpr quant::Packing kPacking = Block::kPacking;
  static constexpr Planes kPlanes{Rows, K};
  static constexpr int kRows = Rows, kK = K, kUnits = K / 32, kSub = Block::kSub, kElems = Block::kElems;
  static constexpr int kZero = Block::kZero;
  static constexpr u64 kXRowBytes = Q8Rows<K>::kRowBytes;
  static_assert(K % kElems == 0, "k must be a multiple of the block size");
  static_assert(kSub == 16 || kSub == 32, "kSub must be 16 or 32");

  /// 32 columns. low: the codes' low 4 bits, or low 2 bits (then only two words are used); high: their further bits;
  /// halves: the block's f16 d and dmin (or m); numbers: the small integers that scales and minima are made of; tops:
  /// the upper two bits of numbers of 6 bits. See planes_codes.h.
  struct Unit {
    U32x4 low;
    U32x2 high;
    u32 halves, numbers, tops;
  };
  using XUnit = XPair;
  FORGE_DEVICE static XUnit load_x(const u8* row, int unit) { return XPair::load<K>(row, unit); }

  FORGE_DEVICE static Unit load_unit(const u8* weights, int row, int unit) {
    Unit out{};
    const u32 part = unit_number(row, kUnits, unit);
    const auto at = [&](u64 plane, u32 index, u32 bytes) { return weights + plane + static_cast<u64>(index) * bytes; };
    const u8* low = at(0, part, Planes::kLowBytes);
    if constexpr (kPacking.low == 4) {
      out.low = load16_once(low);
    } else {
      const U32x2 pair = load8(low);
      out.low = {{pair.at[0], pair.at[1], 0, 0}};
    }
    const u8* high = at(kPlanes.high, part, Planes::kHighBytes);
    if constexpr (kPacking.high == 1) out.high = {{load(reinterpret_cast<const u32*>(high)), 0}};
    if constexpr (kPacking.high == 2) out.high = load8(high);
    const u8* halves = at(kPlanes.halves, part / Planes::kParts, Planes::kHalvesBytes);
    if constexpr (kPacking.halves == 2) out.halves = load(reinterpret_cast<const u32*>(halves));
    if constexpr (kPacking.halves == 1) out.halves = load(reinterpret_cast<const u16*>(halves));
    const u8* numbers = Planes::kNumberBits == 4 ? at(kPlanes.numbers, part / 2, 1)
                                                 : at(kPlanes.numbers, part, Planes::kNumberBits / 8);
    if constexpr (Planes::kNumberBits == 16) out.numbers = load(reinterpret_cast<const u16*>(numbers));
    if constexpr (Planes::kNumberBits == 8) out.numbers = load(numbers);
    if constexpr (Planes::kNumberBits == 4) out.numbers = load(numbers) >> (part % 2 * 4);
    if constexpr (Planes::kTopBits > 0) {
      constexpr u32 kUnitsOfByte = 8 / Planes::kTopBits;
      out.tops = load(at(kPlanes.tops, part / kUnitsOfByte, 1)) >> (part % kUnitsOfByte * Planes::kTopBits);
    }
    return out;
  }

  // Dots use signed bytes. Levels from a table have kZero subtracted in the table. Codes without a table are used as
  // they are, so the dot is too large by kAbove times the sum of the activations' quants, which add() subtracts.
  static constexpr bool kLevels = requires { Block::kLevels[0]; };
  static constexpr int kAbove = kLevels ? 0 : kZero;
  /// The 16 levels minus kZero, as signed bytes.
  FORGE_DEVICE static constexpr U32x4 levels() {
    U32x4 out{};
    if constexpr (kLevels)
      for (int i = 0; i < 16; ++i) out.at[i / 4] |= static_cast<u32>(Block::kLevels[i] - kZero & 255) << (i % 4 * 8);
    return out;
  }

  /// The factors of columns 4w .. 4w+3 as signed bytes, larger by kAbove.
  FORGE_DEVICE static u32 values(const Unit& unit, int w) {
    if constexpr (kLevels) {
      constexpr U32x4 kTable = levels();
      return lookup4(word(unit, w), kTable);
    } else {
      return word(unit, w);
    }
  }
  /// The codes of columns 4w .. 4w+3.
  FORGE_DEVICE static u32 word(const Unit& unit, int w) {
    const auto low = quant::plane_word(kPacking.low, w);
    u32 out = unit.low.at[low.word] >> low.shift & ((1u << kPacking.low) - 1) * 0x01010101u;
    if constexpr (kPacking.high != 0) {
      const auto high = quant::plane_word(kPacking.high, w);
      out |= (unit.high.at[high.word] >> high.shift & ((1u << kPacking.high) - 1) * 0x01010101u) << kPacking.low;
    }
    return out;
  }

  /// Small integer i of the unit.
  FORGE_DEVICE static u32 number(const Unit& unit, int i) {
    if constexpr (kPacking.number_bits == 8) return unit.numbers >> (8 * i) & 255u;
    const u32 low = unit.numbers >> (4 * i) & 15u;
    return Planes::kTopBits > 0 ? low | (unit.tops >> (2 * i) & 3u) << 4 : low;
  }
  /// The scale of columns 16 * half .. 16 * half + 15 (of all 32 if kSub is 32).
  FORGE_DEVICE static float scale(const Unit& unit, int half) {
    if constexpr (kPacking.scale == quant::ScaleKind::kExponent) return quant::half_of_e8m0(number(unit, 0));
    if constexpr (kPacking.scale == quant::ScaleKind::kE5M3) return quant::scale_of_e5m3(number(unit, half));
    const float d = f32_of_f16(static_cast<u16>(unit.halves));
    if constexpr (kPacking.numbers == 0) return d;
    const u32 raw = number(unit, half * static_cast<int>(kPacking.numbers_per_sub(kSub)));
    return d * (static_cast<float>(quant::scale_factor(kPacking.scale, raw)) * kPacking.unit);
  }
  /// The minimum of the same columns, to be added.
  FORGE_DEVICE static float minimum(const Unit& unit, int half) {
    const float m = f32_of_f16(static_cast<u16>(unit.halves >> 16));
    if constexpr (kPacking.numbers == 0) return m;
    return -m * static_cast<float>(number(unit, half * static_cast<int>(kPacking.numbers_per_sub(kSub)) + 1));
  }

  static constexpr int kUnitColumns = 32;
  using XHalf = QuantisedHalf;
  template <class Numbers>
  FORGE_DEVICE static void expand(const Unit& unit, u32 (&pairs)[16]) {
    FORGE_UNROLL
    for (int w = 0; w < 8; ++w) {
      const int half = kSub == 16 ? w / 4 : 0;
      const float d = scale(unit, half) * Numbers::kWeight;
      float m = 0.0f;
      if constexpr (Block::kMinimum) m = minimum(unit, half) * Numbers::kWeight;
      if constexpr (kLevels)
        expand_bytes<128, Numbers>(raised(values(unit, w)), d, m, pairs + 2 * w);
      else
        expand_bytes<kZero, Numbers>(values(unit, w), d, m, pairs + 2 * w);
    }
  }

  /// sum + product of the unit with 32 columns of a token. Activations have a scale s and a sum of quants for each 16
  /// columns, so each half contributes scale * s * (dot - kAbove * sum of quants) + minimum * s * (sum of quants).
  FORGE_DEVICE static float add(float sum, const Unit& w, const XUnit& x) {
    i32 low = 0, high = 0;
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) {
      low = dot4(values(w, i), x.low.at[i], low);
      high = dot4(values(w, 4 + i), x.high.at[i], high);
    }
    const float s0 = bf16_scale(x.meta.at[0]), s1 = bf16_scale(x.meta.at[1]);
    const i32 sum0 = quant_sum(x.meta.at[0]), sum1 = quant_sum(x.meta.at[1]);
    low -= kAbove * sum0;
    high -= kAbove * sum1;
    const float first = s0 * static_cast<float>(low), second = s1 * static_cast<float>(high);
    if constexpr (kSub == 32) {
      sum = fma_of(scale(w, 0), first + second, sum);
      if constexpr (Block::kMinimum)
        sum = fma_of(minimum(w, 0), fma_of(s0, static_cast<float>(sum0), s1 * static_cast<float>(sum1)), sum);
    } else {
      sum = fma_of(scale(w, 1), second, fma_of(scale(w, 0), first, sum));
      if constexpr (Block::kMinimum)
        sum = fma_of(minimum(w, 1), s1 * static_cast<float>(sum1),
                     fma_of(minimum(w, 0), s0 * static_cast<float>(sum0), sum));
    }
    return sum;
  }

  /// The bits that a plane has for one column of a unit; `plane` points to the unit's part of it. Loads the word from
  /// memory again, because registers of a unit cannot be indexed by a variable.
  FORGE_DEVICE static u32 code_bits(const u8* plane, u32 bits, int column) {
    const auto at = quant::plane_word(bits, static_cast<u32>(column / 4));
    return load(reinterpret_cast<const u32*>(plane) + at.word) >> (column % 4 * 8 + at.shift) & ((1u << bits) - 1);
  }
  FORGE_DEVICE static float element(const u8* weights, int row, int k) {
    const Unit unit = load_unit(weights, row, k / 32);
    const int column = k % 32, half = kSub == 16 ? column / 16 : 0;
    const u64 part = static_cast<u64>(row) * kUnits + k / 32;
    u32 raw = code_bits(weights + part * Planes::kLowBytes, kPacking.low, column);
    if constexpr (kPacking.high != 0)
      raw |= code_bits(weights + kPlanes.high + part * Planes::kHighBytes, kPacking.high, column) << kPacking.low;
    i32 plain = static_cast<i32>(raw) - kZero;
    if constexpr (kLevels) {
      constexpr U32x4 kTable = levels();
      plain = static_cast<i8>(lookup4(raw, kTable));
    }
    const float value = scale(unit, half) * static_cast<float>(plain);
    return Block::kMinimum ? value + minimum(unit, half) : value;
  }
};

}  // namespace forge::gpu
