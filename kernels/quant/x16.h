#pragma once
// Layout "x16": how weights lie in memory for CPU kernels. Rows are packed in groups of 16; the last group is padded
// with rows of zeros. One 64-byte load then holds 4 bytes of each of 16 rows, which is one operand of a 16-lane dot
// instruction (lane r = row r of the group).
//
// A group takes exactly the bytes of its 16 rows and is read as one stream, from its first byte to its last. It is a
// sequence of units. A unit is the quants of a few blocks (of all 16 rows) and right behind them their scales. It has
// as many blocks as make its size a multiple of 64, so all its loads are aligned like the group. The last unit of a
// group may have fewer blocks.
//
//   Q4_0, a unit of two blocks b0, b1 (576 bytes):
//   | b0 word 0 | b0 word 1 | b0 word 2 | b0 word 3 | b1 word 0 .. 3 | d of b0 | d of b1 |
//     64 bytes                                        4 * 64 bytes     16 f16    16 f16
//   Within a 64-byte line: | row 0: 4 bytes | row 1: 4 bytes | ... | row 15: 4 bytes |
//
//   quants  one line for each 4-byte word of the native block's quants, in order
//     Q8_0        8 words of unsigned bytes, q + 128; word j has columns 4j .. 4j+3
//     Q4_0, Q4_1  4 words; byte i of word j has column 4j+i (low nibble) and column 16+4j+i (high nibble)
//   scales  per block 16 f16 d (Q8_0, Q4_0), or 16 f16 d and then 16 f16 m (Q4_1)
//   F32, F16, BF16  for each column 16 elements, lane r = row r; nothing else
// All other types are packed as x16_codes.h describes. Packing is in kernels/cpu/matmul/pack-inl.h.

#include <cstdint>
#include <numeric>
#include <type_traits>

#include "kernels/quant/planes.h"
#include "kernels/quant/rows.h"
#include "kernels/quant/x16_codes.h"

namespace forge::quant {

/// Rows of a group.
inline constexpr std::size_t kX16Rows = 16;

/// Groups of a weight of `rows` rows; the last one may have padding rows.
constexpr std::size_t x16_groups(std::size_t rows) {
  return (rows + kX16Rows - 1) / kX16Rows;
}
/// Bytes of one group of 16 rows of k elements.
constexpr std::size_t x16_group_bytes(DType type, std::size_t k) {
  std::size_t bytes = kX16Rows * row_bytes(type, k);
  with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (HasPacking<Block>) bytes = k / Block::kElems * X16Codes<Block>::kBytes;
  });
  return bytes;
}
/// Bytes that one row of a weight takes in a layout. In x16 that is a sixteenth of a group.
constexpr std::size_t layout_row_bytes(Layout layout, DType type, std::size_t k) {
  return layout == Layout::kX16      ? x16_group_bytes(type, k) / kX16Rows
         : layout == Layout::kPlanes ? planes_row_bytes(type, k)
                                     : row_bytes(type, k);
}
/// Bytes of a whole weight in layout x16, padding rows included.
constexpr std::size_t x16_bytes(DType type, std::size_t rows, std::size_t k) {
  return x16_groups(rows) * x16_group_bytes(type, k);
}

/// Where quants and scales are in a native block: kWords 4-byte words of quants from byte kQuantsAt on, and kParts
/// scales of kPartBytes each from byte kScalesAt on. Packing XORs each word with kFlip, which turns Q8_0's signed bytes
/// into unsigned ones (q + 128). A further type of this kind needs one more specialisation; everything below follows
/// from it.
template <class Block>
struct X16Block;
template <>
struct X16Block<BlockQ8_0> {
  static constexpr std::size_t kWords = 8, kQuantsAt = 2, kParts = 1, kPartBytes = 2, kScalesAt = 0;
  static constexpr std::uint32_t kFlip = 0x80808080u;
};
template <>
struct X16Block<BlockQ4_0> {
  static constexpr std::size_t kWords = 4, kQuantsAt = 2, kParts = 1, kPartBytes = 2, kScalesAt = 0;
  static constexpr std::uint32_t kFlip = 0;
};
template <>
struct X16Block<BlockQ4_1> {
  static constexpr std::size_t kWords = 4, kQuantsAt = 4, kParts = 2, kPartBytes = 2, kScalesAt = 0;
  static constexpr std::uint32_t kFlip = 0;
};

/// Sizes in a group's unit; all are for 16 rows together.
template <class Block>
struct X16Unit {
  static constexpr std::size_t kPlaneBytes = kX16Rows * X16Block<Block>::kPartBytes;  ///< 16 times d, or 16 times m
  static constexpr std::size_t kQuantBytes = 64 * X16Block<Block>::kWords;            ///< quants of one block
  static constexpr std::size_t kScaleBytes = kPlaneBytes * X16Block<Block>::kParts;   ///< scales of one block
  static constexpr std::size_t kBlocks = 64 / std::gcd(std::size_t{64}, kScaleBytes);
  static constexpr std::size_t kBlockBytes = kQuantBytes + kScaleBytes;
  static constexpr std::size_t kBytes = kBlocks * kBlockBytes;
  static_assert(kBlockBytes == kX16Rows * sizeof(Block), "a block is its words and its scales");
};

/// Byte offsets of a block's quants and scales from the start of its group.
struct X16Place {
  std::size_t quants, scales;
};
/// Place of block b in a group whose rows have `blocks` blocks. In a short last unit the scales start earlier, right
/// behind the quants of the blocks that are left.
template <class Block>
FORGE_QUANT_FN constexpr X16Place x16_place(std::size_t blocks, std::size_t b) {
  using Unit = X16Unit<Block>;
  const std::size_t first = b / Unit::kBlocks * Unit::kBlocks, in_unit = b - first;
  const std::size_t count = blocks - first < Unit::kBlocks ? blocks - first : Unit::kBlocks;
  const std::size_t at = first * Unit::kBlockBytes;
  return {at + in_unit * Unit::kQuantBytes, at + count * Unit::kQuantBytes + in_unit * Unit::kScaleBytes};
}

/// Restores the native bytes of one block of row (lane) r.
template <class Block>
inline void x16_unpack_block(std::byte* native, const std::byte* group, X16Place place, std::size_t r) {
  using Parts = X16Block<Block>;
  for (std::size_t j = 0; j < Parts::kWords; ++j) {
    std::uint32_t word;
    std::memcpy(&word, group + place.quants + 64 * j + 4 * r, 4);
    word ^= Parts::kFlip;
    std::memcpy(native + Parts::kQuantsAt + 4 * j, &word, 4);
  }
  for (std::size_t part = 0; part < Parts::kParts; ++part)
    std::memcpy(native + Parts::kScalesAt + Parts::kPartBytes * part,
                group + place.scales + X16Unit<Block>::kPlaneBytes * part + Parts::kPartBytes * r, Parts::kPartBytes);
}

/// Restores a whole group of Q8_0, Q4_0 or Q4_1. rows[r] is where row r goes; nullptr skips it.
template <class Block>
void x16_unpack_blocks(const std::byte* group, std::size_t k, std::byte* const* rows) {
  const std::size_t blocks = k / Block::kElems;
  for (std::size_t r = 0; r < kX16Rows; ++r)
    for (std::size_t b = 0; rows[r] && b < blocks; ++b)
      x16_unpack_block<Block>(rows[r] + b * sizeof(Block), group, x16_place<Block>(blocks, b), r);
}

/// Restores a whole group of F32, F16 or BF16; Element has the type's size.
template <class Element>
void x16_unpack_elements(const std::byte* group, std::size_t k, std::byte* const* rows) {
  for (std::size_t r = 0; r < kX16Rows; ++r)
    for (std::size_t i = 0; rows[r] && i < k; ++i)
      std::memcpy(rows[r] + i * sizeof(Element), group + (i * kX16Rows + r) * sizeof(Element), sizeof(Element));
}

/// The inverse of packing: restores the native bytes of `groups` groups from first_group on. row_of(row) returns where
/// the bytes of a row go, or nullptr to skip it. Returns false also for the types of x16_codes.h: their packed form
/// keeps the values but not the file's bytes, so dequantize_row is their inverse.
template <class RowOf>
bool unpack_rows(DType type, std::size_t k, std::size_t first_group, std::size_t groups, const std::byte* packed,
                 RowOf&& row_of) {
  bool has_bytes = is_float(type);
  with_block(type, [&]<class Block>(std::type_identity<Block>) { has_bytes = !HasPacking<Block>; });
  if (!has_bytes) return false;
  for (std::size_t g = 0; g < groups; ++g) {
    std::byte* rows[kX16Rows];
    for (std::size_t r = 0; r < kX16Rows; ++r) rows[r] = row_of((first_group + g) * kX16Rows + r);
    const std::byte* group = packed + g * x16_group_bytes(type, k);
    if (type == DType::kF32)
      x16_unpack_elements<std::uint32_t>(group, k, rows);
    else if (is_float(type))
      x16_unpack_elements<std::uint16_t>(group, k, rows);
    else
      with_block(type, [&]<class Block>(std::type_identity<Block>) {
        if constexpr (!HasPacking<Block>) x16_unpack_blocks<Block>(group, k, rows);
      });
  }
  return true;
}

/// Dequantises row `row` of the weight at `base` to k floats, from the native layout or x16. Returns false for a type
/// without CPU kernels and for other layouts.
inline bool dequantize_row(DType type, Layout layout, const std::byte* base, std::size_t k, std::size_t row,
                           float* out) {
  if (layout == Layout::kNative) return dequantize_native(type, base + row * row_bytes(type, k), k, out);
  if (layout != Layout::kX16) return false;
  const std::byte* group = base + row / kX16Rows * x16_group_bytes(type, k);
  const std::size_t lane = row % kX16Rows;
  if (is_float(type)) {
    for (std::size_t i = 0; i < k; ++i) out[i] = float_element(type, group, i * kX16Rows + lane);
    return true;
  }
  return with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (HasPacking<Block>) {
      x16_dequantize_codes<Block>(group, k, lane, out);
    } else {
      const std::size_t blocks = k / Block::kElems;
      for (std::size_t b = 0; b < blocks; ++b) {
        std::byte native[sizeof(Block)];
        x16_unpack_block<Block>(native, group, x16_place<Block>(blocks, b), lane);
        dequantize_blocks<Block>(native, Block::kElems, out + Block::kElems * b);
      }
    }
  });
}

}  // namespace forge::quant
