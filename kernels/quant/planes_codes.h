#pragma once
// Layout "planes" (planes.h) of the block types that have a Packing. A weight of `rows` rows is up to five planes, one
// after the other. Each plane has all rows in order, and in a row the columns in order:
//   low      per 32 columns 16 bytes of nibbles in Q4_0's order, or 8 bytes of bit pairs
//   high     per 32 columns 4 bytes for each of the remaining bits of a code
//   halves   per block its f16 numbers
//   numbers  the small integers of scales and minima: bytes (8 bits), or nibbles, the low nibble first
//   tops     for 6-bit integers their upper two bits, four per byte, the lowest bits first
//
// How codes share words: word w of 32 columns is the 4 bytes with the codes of columns 4w..4w+3. Words are shifted and
// OR-ed together, so a kernel gets a word back with one shift and one mask:
//   nibbles (16 bytes = 4 words)     word w is in word w % 4, from bit 4 * (w / 4) of each byte
//   bit pairs (8 bytes = 2 words)    word w is in word w / 4, from bit 2 * (w % 4) of each byte
//   single bits (4 bytes = 1 word)   word w is bit w of each byte
// Each plane starts where its loads are aligned. Types take the native number of bytes, those with fewer than 2 bits a
// weight 2 bits.

#include "kernels/quant/packing.h"

namespace forge::quant {

/// Sizes of a block's share of each plane, and the byte offsets of the planes in a weight of `rows` rows of `k` columns
/// (the low plane starts at 0).
template <class Block>
struct PlanesCodes {
  static constexpr Packing kPacking = Block::kPacking;
  static constexpr u32 kParts = Block::kElems / 32;  ///< groups of 32 columns per block
  static constexpr u32 kLowBytes = 4 * kPacking.low, kHighBytes = 4 * kPacking.high;          ///< per 32 columns
  static constexpr u32 kHalvesBytes = 2 * kPacking.halves;                                    ///< per block
  static constexpr u32 kNumberBits = kPacking.numbers * (kPacking.number_bits == 8 ? 8 : 4);  ///< per 32 columns
  static constexpr u32 kTopBits = kPacking.number_bits == 6 ? 2 * kPacking.numbers : 0;       ///< per 32 columns
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

/// Position of a word's codes in a plane: the word that holds them and the bit of each byte where they start.
struct PlaneWord {
  u32 word, shift;
};
/// Position of word w (columns 4w..4w+3) in a plane with `bits` bits per code.
FORGE_QUANT_FN constexpr PlaneWord plane_word(u32 bits, u32 w) {
  if (bits == 4) return {w % 4, w / 4 * 4};
  if (bits == 2) return {w / 4, w % 4 * 2};
  return {0, w};
}

/// Stores one aligned word of a plane.
FORGE_QUANT_FN void store_word(u8* at, u32 word) {
  copy_bytes<4>(__builtin_assume_aligned(at, 4), &word);
}

/// Writes native block b of row `row` into the planes of a weight of `rows` rows of k columns.
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
  const u64 first = row * (k / 32) + b * Planes::kParts;  // the block's first 32 columns
  if constexpr (Planes::kNumberBits > 0)
    for (u32 i = 0; i < Planes::kParts * Planes::kNumberBits / 8; ++i) {
      const bool whole = kPacking.number_bits == 8;
      const u32 number = whole ? scale_number(block, i)
                               : (scale_number(block, 2 * i) & 15u) | (scale_number(block, 2 * i + 1) & 15u) << 4;
      planes[at.numbers + first * Planes::kNumberBits / 8 + i] = static_cast<u8>(number);
    }
  if constexpr (Planes::kTopBits > 0)
    for (u32 i = 0; i < Planes::kParts * Planes::kTopBits / 8; ++i) {
      u32 byte = 0;
      for (u32 n = 0; n < 4; ++n) byte |= scale_number(block, 4 * i + n) >> 4 << (2 * n);
      planes[at.tops + first * Planes::kTopBits / 8 + i] = static_cast<u8>(byte);
    }
  if constexpr (kPacking.halves > 0)
    for (u32 i = 0; i < kPacking.halves; ++i) {
      const u16 half = f16_number(block, i);
      copy_bytes<2>(planes + at.halves + (row * (k / Block::kElems) + b) * Planes::kHalvesBytes + 2 * i, &half);
    }
}

}  // namespace forge::quant
