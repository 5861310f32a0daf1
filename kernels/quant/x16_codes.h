#pragma once
// Layout x16 (x16.h) of the block types that have a Packing. A group of 16 rows is a sequence of units, one unit per
// native block of the 16 rows, read from its first byte to its last:
//   codes    for each 32 columns `low` lines of 64 bytes and then `high` lines. Lane r of a line is 4 bytes of row r.
//            Word w is the codes of columns 4w .. 4w+3, and several words share a line:
//              nibbles      line j has word j in the low nibbles and word 4+j in the high nibbles
//              bit pairs    line p has word 4p+q in bits 2q, 2q+1 of each byte (low and high planes)
//              single bits  the one line has word w in bit w of each byte
//   halves   16 f16 for each of the block's f16 numbers, lane r = row r
//   numbers  lines of 16 bytes, byte r = row r, of the n small integers of scales and minima:
//              8 bits       line i has number i
//              4 or 6 bits  line i has number 2i in the low nibbles and number 2i+1 in the high nibbles
//              6 bits       n/2 further lines at n/2 + j have the upper two bits of numbers 4j .. 4j+3, lowest first
//
// Example: a Q4_K unit (256 columns, 16 rows, 2304 bytes = 16 native blocks of 144):
//   | 8 times 4 lines of nibbles | d, dmin: 2 * 32 bytes | 8 lines of nibbles | 4 lines of upper bits |
//     2048 bytes                   64 bytes                128 bytes            64 bytes
//
// The K types, Q5, IQ4, MXFP4 and TQ2_0 take their native number of bytes. The grids of IQ1, IQ2 and IQ3 become codes
// of 4 bits, up to 4.4 bits per weight, and TQ1_0 becomes TQ2_0. The readers below are templates over `Ops`, which is
// one row of a group in this file (RowOps) and a register of rows in the kernels (Lanes, kernels/cpu/lanes-inl.h).

#include <cstdint>

#include "kernels/quant/blocks.h"

namespace forge::quant {

/// Offsets and sizes in a unit, in bytes; all are for 16 rows together.
template <class Block>
struct X16Codes {
  static constexpr Packing kPacking = Block::kPacking;
  static constexpr u32 kParts = Block::kElems / 32;  ///< groups of 32 columns per block
  static constexpr u32 kPartBytes = 64 * (kPacking.low + kPacking.high);
  static constexpr u32 kNumbers = kPacking.numbers * kParts;
  static constexpr u32 kHalvesAt = kParts * kPartBytes;
  static constexpr u32 kNumbersAt = kHalvesAt + 32 * kPacking.halves;
  static constexpr u32 kNumberLines = kNumbers * kPacking.number_bits / 8;
  static constexpr u32 kBytes = kNumbersAt + 16 * kNumberLines;
};

/// The largest raw value that a block of this type can have. Kernels derive from it how many products fit 16 bits.
template <class Block>
constexpr u32 raw_max() {
  u32 largest = (1u << (Block::kPacking.low + Block::kPacking.high)) - 1;
  if constexpr (HasLevels<Block>) {
    largest = 0;
    for (const u8 level : Block::kLevels) largest = level > largest ? level : largest;
  }
  return largest;
}

/// The four raw values of word `kWord` (columns 4 kWord .. +3) of the 32 columns whose lines begin at `codes`, one byte
/// each. `levels` is the type's table as Ops::lookup takes it; types without levels ignore it.
template <class Block, int kWord, class Ops>
FORGE_QUANT_FN typename Ops::I x16_word(const u8* codes, const typename Ops::Table& levels) {
  constexpr u32 kLow = Block::kPacking.low, kHigh = Block::kPacking.high;
  constexpr int kLine = kLow == 4 ? kWord % 4 : kWord / 4, kShift = kLow == 4 ? kWord / 4 * 4 : kWord % 4 * 2;
  typename Ops::I word = Ops::template right<kShift>(Ops::load(codes + 64 * kLine));
  word = Ops::and_(word, Ops::words(kLow == 4 ? 0x0f0f0f0f : 0x03030303));
  if constexpr (kHigh != 0) {
    constexpr int kFrom = kHigh == 1 ? kWord : kWord % 4 * 2, kPlane = kHigh == 1 ? 0 : kWord / 4;
    constexpr int kMove = static_cast<int>(kLow) - kFrom;  // the bits go right above the low ones
    constexpr int kMask = static_cast<int>(((1u << kHigh) - 1) << kLow) * 0x01010101;
    const typename Ops::I plane = Ops::load(codes + 64 * (kLow + kPlane));
    if constexpr (kMove >= 0)
      word = Ops::or_(word, Ops::and_(Ops::template left<kMove>(plane), Ops::words(kMask)));
    else
      word = Ops::or_(word, Ops::and_(Ops::template right<-kMove>(plane), Ops::words(kMask)));
  }
  if constexpr (HasLevels<Block>)
    return Ops::lookup(levels, word);
  else
    return word;
}

/// Small integer `kIndex` of a unit, one per lane; `numbers` is the unit's first line of numbers.
template <class Block, int kIndex, class Ops>
FORGE_QUANT_FN typename Ops::I x16_number(const u8* numbers) {
  constexpr u32 kBits = Block::kPacking.number_bits;
  if constexpr (kBits == 8) {
    return Ops::bytes(numbers + 16 * kIndex);
  } else {
    const typename Ops::I line = Ops::bytes(numbers + 16 * (kIndex / 2));
    const typename Ops::I low = Ops::and_(Ops::template right<kIndex % 2 * 4>(line), Ops::words(15));
    if constexpr (kBits == 4) return low;
    constexpr int kLine = static_cast<int>(X16Codes<Block>::kNumbers) / 2 + kIndex / 4, kShift = kIndex % 4 * 2;
    const typename Ops::I high = Ops::template right<kShift>(Ops::bytes(numbers + 16 * kLine));
    return Ops::or_(low, Ops::template left<4>(Ops::and_(high, Ops::words(3))));
  }
}

/// f(number) of the type's ScaleKind.
template <class Block, class Ops>
FORGE_QUANT_FN typename Ops::I x16_factor(typename Ops::I number) {
  constexpr ScaleKind kKind = Block::kPacking.scale;
  if constexpr (kKind == ScaleKind::kSigned)
    return Ops::template right_signed<24>(Ops::template left_word<24>(number));
  else if constexpr (kKind == ScaleKind::kMinus32)
    return Ops::plus(number, Ops::words(-32));
  else if constexpr (kKind == ScaleKind::kOdd)
    return Ops::plus(Ops::plus(number, number), Ops::words(1));
  else
    return number;
}

/// Scale and offset of sub-block `kPart` of a unit; d and m are the unit's f16 numbers as floats. They equal sub_scale
/// and sub_offset (blocks.h), except that MXFP4's exponents 0 and 1 (values below 1e-37) count as 0.
template <class Block, int kPart, class Ops>
FORGE_QUANT_FN void x16_scale(const u8* numbers, typename Ops::F d, typename Ops::F m, typename Ops::F& scale,
                              typename Ops::F& offset) {
  constexpr Packing kPacking = Block::kPacking;
  constexpr int kIndex = kPart * static_cast<int>(kPacking.numbers_per_sub(Block::kSub));
  scale = d;
  if constexpr (kPacking.scale == ScaleKind::kExponent) {
    const typename Ops::I number = x16_number<Block, kIndex, Ops>(numbers);
    scale = Ops::as_float(Ops::template left_word<23>(Ops::saturating_sub_one(number)));
  } else if constexpr (kPacking.scale == ScaleKind::kE5M3) {
    const typename Ops::I number = x16_number<Block, kIndex, Ops>(numbers);
    scale = Ops::times(Ops::as_float(Ops::template left_word<20>(number)), Ops::all(kE5M3Factor));
  } else if constexpr (kPacking.numbers != 0) {
    // `unit` is a power of two, so the order of the products changes no bit; this product is shared by all sub-blocks
    const typename Ops::F each = kPacking.unit == 1.0f ? d : Ops::times(d, Ops::all(kPacking.unit));
    scale = Ops::times(each, Ops::to_float(x16_factor<Block, Ops>(x16_number<Block, kIndex, Ops>(numbers))));
  }
  if constexpr (!Block::kMinimum) {
    offset = Ops::times(Ops::all(-static_cast<float>(Block::kZero)), scale);
  } else if constexpr (kPacking.numbers == 0) {
    offset = m;
  } else {
    const typename Ops::F negative = Ops::times(Ops::all(-1.0f), m);  // shared by all sub-blocks
    offset = Ops::times(negative, Ops::to_float(x16_number<Block, kIndex + 1, Ops>(numbers)));
  }
}

/// The Ops of one row: I is 4 bytes of a line, F one float. Pointers passed in must point at the row's lane already.
struct RowOps {
  using I = u32;
  using F = float;
  using Table = const u8*;
  static I load(const u8* p) {
    u32 word;
    std::memcpy(&word, p, 4);
    return word;
  }
  static I bytes(const u8* p) { return *p; }
  static I words(int w) { return static_cast<u32>(w); }
  static I and_(I a, I b) { return a & b; }
  static I or_(I a, I b) { return a | b; }
  static I plus(I a, I b) { return a + b; }
  static I saturating_sub_one(I a) { return a == 0 ? 0 : a - 1; }
  template <int n>
  static I left(I a) {
    return a << n;
  }
  template <int n>
  static I right(I a) {
    return a >> n;
  }
  template <int n>
  static I left_word(I a) {
    return a << n;
  }
  template <int n>
  static I right_signed(I a) {
    return static_cast<u32>(static_cast<std::int32_t>(a) >> n);
  }
  static I lookup(Table levels, I codes) {
    I out = 0;
    for (u32 shift = 0; shift < 32; shift += 8) out |= static_cast<u32>(levels[codes >> shift & 15u]) << shift;
    return out;
  }
  static F to_float(I a) { return static_cast<float>(static_cast<std::int32_t>(a)); }
  static F as_float(I a) { return f32_of_bits(a); }
  static F all(float x) { return x; }
  static F times(F a, F b) { return a * b; }
};

/// Dequantises row `lane` of a group to k floats.
template <class Block>
void x16_dequantize_codes(const std::byte* group, std::size_t k, std::size_t lane, float* out) {
  using Unit = X16Codes<Block>;
  const u8* levels = nullptr;
  if constexpr (HasLevels<Block>) levels = Block::kLevels;
  for (std::size_t b = 0; b < k / Block::kElems; ++b, group += Unit::kBytes) {
    const auto* unit = reinterpret_cast<const u8*>(group);
    float halves[2]{};
    for (u32 part = 0; part < Unit::kPacking.halves; ++part) {
      u16 half;
      std::memcpy(&half, unit + Unit::kHalvesAt + 32 * part + 2 * lane, 2);
      halves[part] = f32_of_f16(half);
    }
    const auto sub = [&]<int s>() {  // sub-block s
      float scale, offset;
      x16_scale<Block, s, RowOps>(unit + Unit::kNumbersAt + lane, halves[0], halves[1], scale, offset);
      const u8* codes = unit + s * Block::kSub / 32 * Unit::kPartBytes + 4 * lane;
      const auto word = [&]<int w>() {
        const u32 raw = x16_word<Block, w, RowOps>(codes, levels);
        for (u32 i = 0; i < 4; ++i, ++out) {
          const int value = static_cast<int>(raw >> (8 * i) & 255u) - static_cast<int>(Block::kZero);
          *out = Block::kMinimum ? scale * static_cast<float>(value) + offset : scale * static_cast<float>(value);
        }
      };
      constexpr int kFirst = s * static_cast<int>(Block::kSub) % 32 / 4;
      [&]<int... w>(std::integer_sequence<int, w...>) {
        (word.template operator()<kFirst + w>(), ...);
      }(std::make_integer_sequence<int, Block::kSub / 4>{});
    };
    [&]<int... s>(std::integer_sequence<int, s...>) {
      (sub.template operator()<s>(), ...);
    }(std::make_integer_sequence<int, Block::kElems / Block::kSub>{});
  }
}

}  // namespace forge::quant
