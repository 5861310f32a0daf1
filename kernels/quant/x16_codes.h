#pragma once
// Layout x16 of the block types that have a Packing. A group of 16 rows is a run of units, one unit to a native block
// of each row, read from its first byte to its last:
//   codes    for each 32 columns, `low` lines of 64 bytes and then `high` ones. Word w is columns 4w..4w+3; lane r of a
//            line, 4 bytes, is row r's. Nibbles: line j has word j (low) and word 4+j (high). Pairs of bits, in either
//            plane: line p has word 4p+q in bits 2q, 2q+1. Single bits: bit w of the one line is word w's.
//   halves   16 f16 for each of the block's
//   numbers  lines of 16 bytes, a byte a row: number i is byte i (8 bits), or a nibble of byte i/2; of 6 bits the upper
//            two are bits 2(i%4) of byte n/2 + i/4, n being how many there are
// So it takes the bytes of the file's rows for the K types, Q5, IQ4, MXFP4 and TQ2_0; the grids of IQ1, IQ2 and IQ3
// become codes of 4 bits, which takes up to 4.4 bits a weight, and TQ1_0 becomes TQ2_0. Reading is written once, over
// `Ops`, which is one row of a group here and a register of rows in the kernels.

#include <cstdint>

#include "kernels/quant/blocks.h"

namespace forge::quant {

/// Bytes of a unit, all 16 rows together.
template <class Block>
struct X16Codes {
  static constexpr Packing kPacking = Block::kPacking;
  static constexpr u32 kParts = Block::kElems / 32;  ///< of 32 columns
  static constexpr u32 kPartBytes = 64 * (kPacking.low + kPacking.high);
  static constexpr u32 kNumbers = kPacking.numbers * kParts;
  static constexpr u32 kHalvesAt = kParts * kPartBytes;
  static constexpr u32 kNumbersAt = kHalvesAt + 32 * kPacking.halves;
  static constexpr u32 kNumberLines = kNumbers * kPacking.number_bits / 8;
  static constexpr u32 kBytes = kNumbersAt + 16 * kNumberLines;
};

/// The largest raw value there can be.
template <class Block>
constexpr u32 raw_max() {
  u32 largest = (1u << (Block::kPacking.low + Block::kPacking.high)) - 1;
  if constexpr (HasLevels<Block>) {
    largest = 0;
    for (const u8 level : Block::kLevels) largest = level > largest ? level : largest;
  }
  return largest;
}

/// The four raw values of word `kWord` of 32 columns whose codes begin at `codes`; `levels` as Ops looks them up.
template <class Block, int kWord, class Ops>
FORGE_QUANT_FN typename Ops::I x16_word(const u8* codes, const typename Ops::Table& levels) {
  constexpr u32 kLow = Block::kPacking.low, kHigh = Block::kPacking.high;
  constexpr int kLine = kLow == 4 ? kWord % 4 : kWord / 4, kShift = kLow == 4 ? kWord / 4 * 4 : kWord % 4 * 2;
  typename Ops::I word = Ops::template right<kShift>(Ops::load(codes + 64 * kLine));
  word = Ops::both(word, Ops::words(kLow == 4 ? 0x0f0f0f0f : 0x03030303));
  if constexpr (kHigh != 0) {
    constexpr int kFrom = kHigh == 1 ? kWord : kWord % 4 * 2, kPlane = kHigh == 1 ? 0 : kWord / 4;
    constexpr int kMove = static_cast<int>(kLow) - kFrom;
    constexpr int kMask = static_cast<int>(((1u << kHigh) - 1) << kLow) * 0x01010101;
    const typename Ops::I plane = Ops::load(codes + 64 * (kLow + kPlane));
    if constexpr (kMove >= 0)
      word = Ops::either(word, Ops::both(Ops::template left<kMove>(plane), Ops::words(kMask)));
    else
      word = Ops::either(word, Ops::both(Ops::template right<-kMove>(plane), Ops::words(kMask)));
  }
  if constexpr (HasLevels<Block>)
    return Ops::lookup(levels, word);
  else
    return word;
}

/// Number `kIndex` of a unit whose lines of numbers begin at `numbers`, a lane a row.
template <class Block, int kIndex, class Ops>
FORGE_QUANT_FN typename Ops::I x16_number(const u8* numbers) {
  constexpr u32 kBits = Block::kPacking.number_bits;
  if constexpr (kBits == 8) {
    return Ops::bytes(numbers + 16 * kIndex);
  } else {
    const typename Ops::I line = Ops::bytes(numbers + 16 * (kIndex / 2));
    const typename Ops::I low = Ops::both(Ops::template right<kIndex % 2 * 4>(line), Ops::words(15));
    if constexpr (kBits == 4) return low;
    constexpr int kLine = static_cast<int>(X16Codes<Block>::kNumbers) / 2 + kIndex / 4, kShift = kIndex % 4 * 2;
    const typename Ops::I high = Ops::template right<kShift>(Ops::bytes(numbers + 16 * kLine));
    return Ops::either(low, Ops::template left<4>(Ops::both(high, Ops::words(3))));
  }
}

template <class Block, class Ops>
FORGE_QUANT_FN typename Ops::I x16_factor(typename Ops::I number) {
  constexpr ScaleKind kKind = Block::kPacking.scale;
  if constexpr (kKind == ScaleKind::kSigned)
    return Ops::template right_signed<24>(Ops::template left_word<24>(number));
  else if constexpr (kKind == ScaleKind::kLess32)
    return Ops::plus(number, Ops::words(-32));
  else if constexpr (kKind == ScaleKind::kOdd)
    return Ops::plus(Ops::plus(number, number), Ops::words(1));
  else
    return number;
}

/// Scale and offset of columns kSub * kPart and on of a unit; d, m: its f16 numbers. They are sub_scale and sub_offset
/// but for MXFP4's exponents 0 and 1 (values below 1e-37), which count as 0.
template <class Block, int kPart, class Ops>
FORGE_QUANT_FN void x16_scale(const u8* numbers, typename Ops::F d, typename Ops::F m, typename Ops::F& scale,
                              typename Ops::F& offset) {
  constexpr Packing kPacking = Block::kPacking;
  constexpr int kIndex = kPart * static_cast<int>(kPacking.numbers_a_part(Block::kSub));
  scale = d;
  if constexpr (kPacking.scale == ScaleKind::kExponent) {
    const typename Ops::I number = x16_number<Block, kIndex, Ops>(numbers);
    scale = Ops::as_float(Ops::template left_word<23>(Ops::less_one(number)));
  } else if constexpr (kPacking.numbers != 0) {
    // `unit` is a power of two: it makes no difference where it comes in, and here it is the same for all parts
    const typename Ops::F each = kPacking.unit == 1.0f ? d : Ops::times(d, Ops::all(kPacking.unit));
    scale = Ops::times(each, Ops::to_float(x16_factor<Block, Ops>(x16_number<Block, kIndex, Ops>(numbers))));
  }
  if constexpr (!Block::kMinimum) {
    offset = Ops::times(Ops::all(-static_cast<float>(Block::kZero)), scale);
  } else if constexpr (kPacking.numbers == 0) {
    offset = m;
  } else {
    const typename Ops::F negative = Ops::times(Ops::all(-1.0f), m);  // the same for all parts
    offset = Ops::times(negative, Ops::to_float(x16_number<Block, kIndex + 1, Ops>(numbers)));
  }
}

/// One row of a group: pointers are its lane's.
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
  static I both(I a, I b) { return a & b; }
  static I either(I a, I b) { return a | b; }
  static I plus(I a, I b) { return a + b; }
  static I less_one(I a) { return a == 0 ? 0 : a - 1; }
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

/// The inverse, by values: row `lane` of a group to k floats.
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
    const auto sub = [&]<int s>() {  // columns kSub * s and on
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
