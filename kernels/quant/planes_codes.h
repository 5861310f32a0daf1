#pragma once
// Layout planes (planes.h) of the block types that have a Packing. A weight of `rows` rows is one plane after another,
// each row after row, and in a row from its first 32 columns to its last:
//   low      16 bytes for 32 columns: 4-bit codes in Q4_0's order; or 8 bytes: pairs of bits
//   high     4 bytes a bit for 32 columns: the codes' further bits
//   halves   the block's f16 numbers
//   numbers  the small whole numbers of its scales: bytes; or nibbles, the low one first, and behind all of them
//   tops     the upper two bits of those of 6 bits, the lowest bits of a byte first
// Word w of 32 columns is columns 4w..4w+3. Nibbles: word w is in word w%4 of the 16 bytes, from bit w/4*4 of each byte
// on. Pairs of bits, in either plane: in word w/4, from bit w%4*2 on. Single bits: bit w of each byte.
// It takes the native bytes, and every plane starts where its loads are aligned.

#include "kernels/quant/packing.h"

namespace forge::quant {

/// Where the planes of a weight start, and what they take.
template <class Block>
struct PlanesCodes {
  static constexpr Packing kPacking = Block::kPacking;
  static constexpr u32 kParts = Block::kElems / 32;                                   ///< of 32 columns to a block
  static constexpr u32 kLowBytes = 4 * kPacking.low, kHighBytes = 4 * kPacking.high;  ///< of a part
  static constexpr u32 kHalvesBytes = 2 * kPacking.halves;                            ///< of a block
  static constexpr u32 kNumberBits = kPacking.numbers * (kPacking.number_bits == 8 ? 8 : 4);  ///< of a part
  static constexpr u32 kTopBits = kPacking.number_bits == 6 ? 2 * kPacking.numbers : 0;       ///< of a part
  static_assert(kParts * kNumberBits % 8 == 0 && kParts * kTopBits % 8 == 0, "a block has whole bytes of numbers");

  static constexpr u32 kBlockBytes =
      kParts * (kLowBytes + kHighBytes) + kHalvesBytes + kParts * (kNumberBits + kTopBits) / 8;

  u64 high, halves, numbers, tops;
  FORGE_QUANT_FN constexpr PlanesCodes(u64 rows, u64 k)
      : high(rows * (k / 32) * kLowBytes),
        halves(high + rows * (k / 32) * kHighBytes),
        numbers(halves + rows * (k / Block::kElems) * kHalvesBytes),
        tops(numbers + rows * (k / 32) * kNumberBits / 8) {}
};

/// Bits of codes that share a word with others: where those of word w stand in a plane of `bits` bits a code.
struct PlaneWord {
  u32 word, shift;
};
FORGE_QUANT_FN constexpr PlaneWord plane_word(u32 bits, u32 w) {
  if (bits == 4) return {w % 4, w / 4 * 4};
  if (bits == 2) return {w / 4, w % 4 * 2};
  return {0, w};
}

/// Words are aligned; bytes of a block are not.
FORGE_QUANT_FN void store_word(u8* at, u32 word) {
  copy_bytes<4>(__builtin_assume_aligned(at, 4), &word);
}

/// Block b of row `row` into the planes of a weight of `rows` rows of k columns.
template <class Block>
FORGE_QUANT_FN void planes_pack_codes(const Block& block, u64 rows, u64 k, u64 row, u64 b, u8* planes) {
  using Planes = PlanesCodes<Block>;
  constexpr Packing kPacking = Block::kPacking;
  const Planes at(rows, k);
  u8 codes[Block::kElems];
  if constexpr (requires { Block::kLevels[0]; })
    code_values(block, codes);
  else
    raw_values(block, codes);
  for (u32 part = 0; part < Planes::kParts; ++part) {
    const u64 unit = row * (k / 32) + b * Planes::kParts + part;
    u32 low[4] = {}, high[2] = {};
    for (u32 w = 0; w < 8; ++w) {
      u32 word;
      copy_bytes<4>(&word, codes + 32 * part + 4 * w);
      const PlaneWord in_low = plane_word(kPacking.low, w), in_high = plane_word(kPacking.high, w);
      low[in_low.word] |= (word & ((1u << kPacking.low) - 1) * 0x01010101u) << in_low.shift;
      high[in_high.word] |= (word >> kPacking.low & ((1u << kPacking.high) - 1) * 0x01010101u) << in_high.shift;
    }
    for (u32 i = 0; i < kPacking.low; ++i) store_word(planes + unit * Planes::kLowBytes + 4 * i, low[i]);
    for (u32 i = 0; i < kPacking.high; ++i) store_word(planes + at.high + unit * Planes::kHighBytes + 4 * i, high[i]);
  }
  const u64 first = row * (k / 32) + b * Planes::kParts;  // part
  if constexpr (Planes::kNumberBits > 0)
    for (u32 i = 0; i < Planes::kParts * Planes::kNumberBits / 8; ++i) {
      const bool whole = kPacking.number_bits == 8;
      const u32 number = whole ? whole_number(block, i)
                               : (whole_number(block, 2 * i) & 15u) | (whole_number(block, 2 * i + 1) & 15u) << 4;
      planes[at.numbers + first * Planes::kNumberBits / 8 + i] = static_cast<u8>(number);
    }
  if constexpr (Planes::kTopBits > 0)
    for (u32 i = 0; i < Planes::kParts * Planes::kTopBits / 8; ++i) {
      u32 byte = 0;
      for (u32 n = 0; n < 4; ++n) byte |= whole_number(block, 4 * i + n) >> 4 << (2 * n);
      planes[at.tops + first * Planes::kTopBits / 8 + i] = static_cast<u8>(byte);
    }
  if constexpr (kPacking.halves > 0)
    for (u32 i = 0; i < kPacking.halves; ++i) {
      const u16 half = half_number(block, i);
      copy_bytes<2>(planes + at.halves + (row * (k / Block::kElems) + b) * Planes::kHalvesBytes + 2 * i, &half);
    }
}

}  // namespace forge::quant
