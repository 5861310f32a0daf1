#pragma once
// x16, the layout of weights that CPU kernels stream: rows in groups of 16, padded at the end with rows of zeros.
// A group takes exactly the bytes of its 16 rows and is one stream, read from its first byte to its last: units of a
// few blocks, each unit the quants of its blocks and right behind them their scales.
//   unit: as many blocks as make its bytes a multiple of 64 (X16Unit), so that every load in it is aligned like the
//     group. The last unit of a group may be shorter: it has what blocks are left, laid out the same way.
//   quants: 64 bytes for each 4-byte word of a native block's quants, in their order; lane r is row r's word.
//     Q8_0: 8 words, unsigned (q + 128); word j has k = 4j..4j+3.
//     Q4_0, Q4_1: 4 words; byte i of word j has k = 4j+i (low nibble) and k = 16+4j+i (high nibble).
//   scales: for each part of a native block's scales 16 of them, lane r row r's. Q8_0, Q4_0: f16 d; Q4_1: f16 d, f16 m.
//   F32, F16, BF16: per k 16 elements, lane = row; nothing else.
// The other types are packed as x16_codes.h says.
// One 64-byte load is then 16 rows' worth of one instruction's operand.

#include <cstdint>
#include <numeric>
#include <type_traits>

#include "kernels/quant/rows.h"
#include "kernels/quant/x16_codes.h"

namespace forge::quant {

inline constexpr std::size_t kX16Rows = 16;

constexpr std::size_t x16_groups(std::size_t rows) {
  return (rows + kX16Rows - 1) / kX16Rows;
}
constexpr std::size_t x16_group_bytes(DType type, std::size_t k) {
  std::size_t bytes = kX16Rows * row_bytes(type, k);
  with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (HasPacking<Block>) bytes = k / Block::kElems * X16Codes<Block>::kBytes;
  });
  return bytes;
}
/// Bytes that a row of a weight takes in a layout; x16: of a group's 16, as much for each.
constexpr std::size_t layout_row_bytes(Layout layout, DType type, std::size_t k) {
  return layout == Layout::kX16 ? x16_group_bytes(type, k) / kX16Rows : row_bytes(type, k);
}
constexpr std::size_t x16_bytes(DType type, std::size_t rows, std::size_t k) {
  return x16_groups(rows) * x16_group_bytes(type, k);
}

/// What a native block is made of: kWords 4-byte words of quants from byte kQuantsAt, and kParts scales of kPartBytes
/// each from byte kScalesAt. kFlip turns signed bytes of quants into unsigned ones and back. A further type is one more
/// of these; everything below follows from it.
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

/// Bytes of a group's unit, all 16 rows together.
template <class Block>
struct X16Unit {
  static constexpr std::size_t kPlaneBytes = kX16Rows * X16Block<Block>::kPartBytes;  ///< one part of a block's scales
  static constexpr std::size_t kQuantBytes = 64 * X16Block<Block>::kWords;            ///< a block's
  static constexpr std::size_t kScaleBytes = kPlaneBytes * X16Block<Block>::kParts;   ///< a block's
  static constexpr std::size_t kBlocks = 64 / std::gcd(std::size_t{64}, kScaleBytes);
  static constexpr std::size_t kBlockBytes = kQuantBytes + kScaleBytes;
  static constexpr std::size_t kBytes = kBlocks * kBlockBytes;
  static_assert(kBlockBytes == kX16Rows * sizeof(Block), "a block is its words and its scales");
};

/// Where block b of `blocks` stands in its group.
struct X16Place {
  std::size_t quants, scales;
};
template <class Block>
FORGE_QUANT_FN constexpr X16Place x16_place(std::size_t blocks, std::size_t b) {
  using Unit = X16Unit<Block>;
  const std::size_t first = b / Unit::kBlocks * Unit::kBlocks, in_unit = b - first;
  const std::size_t count = blocks - first < Unit::kBlocks ? blocks - first : Unit::kBlocks;
  const std::size_t at = first * Unit::kBlockBytes;
  return {at + in_unit * Unit::kQuantBytes, at + count * Unit::kQuantBytes + in_unit * Unit::kScaleBytes};
}

/// One block's native bytes of lane r, from its place in a group.
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

template <class Block>
void x16_unpack_blocks(const std::byte* group, std::size_t k, std::byte* const* rows) {
  const std::size_t blocks = k / Block::kElems;
  for (std::size_t r = 0; r < kX16Rows; ++r)
    for (std::size_t b = 0; rows[r] && b < blocks; ++b)
      x16_unpack_block<Block>(rows[r] + b * sizeof(Block), group, x16_place<Block>(blocks, b), r);
}

template <class Element>
void x16_unpack_elements(const std::byte* group, std::size_t k, std::byte* const* rows) {
  for (std::size_t r = 0; r < kX16Rows; ++r)
    for (std::size_t i = 0; rows[r] && i < k; ++i)
      std::memcpy(rows[r] + i * sizeof(Element), group + (i * kX16Rows + r) * sizeof(Element), sizeof(Element));
}

/// The inverse: row_of(row) gives where the native bytes of a row go, nullptr to skip it. False also for a type whose
/// packed form has its values and not its bytes (x16_codes.h): dequantize_row is their inverse.
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

/// Row `row` of a weight at `base` to k floats. False for a type without kernels.
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
