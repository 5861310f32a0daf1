#pragma once
// x16, the layout of weights that CPU kernels stream: rows in groups of 16, padded at the end with rows of zeros.
// A group takes exactly the bytes of its 16 rows: a plane of quants, then a plane of scales.
//   Q8_0: block b of 32 k, j in 0..7: 64 bytes, lane r holds k = 4j..4j+3 of row r, unsigned (q + 128).
//   Q4_0, Q4_1: block b, j in 0..3: 64 bytes; byte (r, i) holds k = 4j+i (low nibble) and k = 16+4j+i (high nibble).
//     With ggml's nibble order this is a transposition of 4-byte words.
//   scale plane: per block 16 f16 d; Q4_1: 16 f16 d, then 16 f16 m.
//   F32, F16, BF16: per k 16 elements, lane = row; there is no scale plane.
// One 64-byte load is then 16 rows' worth of one instruction's operand, and a decode step reads a group from its first
// byte to its last.

#include <cstdint>

#include "kernels/quant/rows.h"

namespace forge::quant {

inline constexpr std::size_t kX16Rows = 16;

constexpr std::size_t x16_groups(std::size_t rows) {
  return (rows + kX16Rows - 1) / kX16Rows;
}
constexpr std::size_t x16_group_bytes(DType type, std::size_t k) {
  return kX16Rows * row_bytes(type, k);
}
constexpr std::size_t x16_bytes(DType type, std::size_t rows, std::size_t k) {
  return x16_groups(rows) * x16_group_bytes(type, k);
}
/// Where the scale plane starts in a group.
constexpr std::size_t x16_scales_offset(DType type, std::size_t k) {
  return type == DType::kQ8_0 ? 16 * k : 8 * k;
}

/// Geometry of a quantised block in a group. kWords: 4-byte words of quants a row and block; kFlip turns signed bytes
/// into unsigned ones and back.
template <class Block>
struct X16Block;
template <>
struct X16Block<BlockQ8_0> {
  static constexpr std::size_t kWords = 8, kScaleParts = 1;
  static constexpr std::uint32_t kFlip = 0x80808080u;
};
template <>
struct X16Block<BlockQ4_0> {
  static constexpr std::size_t kWords = 4, kScaleParts = 1;
  static constexpr std::uint32_t kFlip = 0;
};
template <>
struct X16Block<BlockQ4_1> {
  static constexpr std::size_t kWords = 4, kScaleParts = 2;
  static constexpr std::uint32_t kFlip = 0;
};

/// Moves one block of lane r between its native form and a group; `Pack` says which way.
template <class Block, bool Pack, class NativeByte, class GroupByte>
inline void x16_move_block(NativeByte* native, GroupByte* group, std::size_t k, std::size_t b, std::size_t r) {
  using Geometry = X16Block<Block>;
  constexpr std::size_t kScaleBytes = 2 * Geometry::kScaleParts;
  GroupByte* quants = group + b * Geometry::kWords * 64 + 4 * r;
  GroupByte* scales = group + 4 * Geometry::kWords * 16 * (k / 32) + b * kScaleBytes * 16 + 2 * r;
  for (std::size_t j = 0; j < Geometry::kWords; ++j) {
    std::uint32_t word;
    std::memcpy(&word, Pack ? native + kScaleBytes + 4 * j : quants + 64 * j, 4);
    word ^= Geometry::kFlip;
    if constexpr (Pack)
      std::memcpy(quants + 64 * j, &word, 4);
    else
      std::memcpy(native + kScaleBytes + 4 * j, &word, 4);
  }
  for (std::size_t part = 0; part < Geometry::kScaleParts; ++part) {
    if constexpr (Pack)
      std::memcpy(scales + 32 * part, native + 2 * part, 2);
    else
      std::memcpy(native + 2 * part, scales + 32 * part, 2);
  }
}

/// One group of a quantised type from 16 native rows; nullptr rows are zeros.
template <class Block>
void x16_pack_blocks(const std::byte* const* rows, std::size_t k, std::byte* group) {
  constexpr std::byte kZeros[sizeof(Block)]{};
  for (std::size_t b = 0; b < k / 32; ++b)
    for (std::size_t r = 0; r < kX16Rows; ++r)
      x16_move_block<Block, true>(rows[r] ? rows[r] + b * sizeof(Block) : kZeros, group, k, b, r);
}
template <class Block>
void x16_unpack_blocks(const std::byte* group, std::size_t k, std::byte* const* rows) {
  for (std::size_t r = 0; r < kX16Rows; ++r)
    for (std::size_t b = 0; rows[r] && b < k / 32; ++b)
      x16_move_block<Block, false>(rows[r] + b * sizeof(Block), group, k, b, r);
}

/// Elements of one group, transposed; Element has the type's width. Strips of 32 k keep all rows in L1.
template <class Element>
void x16_pack_elements(const std::byte* const* rows, std::size_t k, std::byte* group) {
  for (std::size_t strip = 0; strip < k; strip += 32) {
    const std::size_t count = k - strip < 32 ? k - strip : 32;
    Element tile[32][kX16Rows];
    for (std::size_t r = 0; r < kX16Rows; ++r) {
      Element line[32]{};
      if (rows[r]) std::memcpy(line, rows[r] + strip * sizeof(Element), count * sizeof(Element));
      for (std::size_t i = 0; i < 32; ++i) tile[i][r] = line[i];
    }
    std::memcpy(group + strip * kX16Rows * sizeof(Element), tile, count * sizeof(tile[0]));
  }
}
template <class Element>
void x16_unpack_elements(const std::byte* group, std::size_t k, std::byte* const* rows) {
  for (std::size_t r = 0; r < kX16Rows; ++r)
    for (std::size_t i = 0; rows[r] && i < k; ++i)
      std::memcpy(rows[r] + i * sizeof(Element), group + (i * kX16Rows + r) * sizeof(Element), sizeof(Element));
}

/// Packs groups first_group .. first_group+groups-1 to `out` (the first of them). row_of(row) gives the native bytes of
/// a row, nullptr for a padding row: rows may come from several tensors. Groups are independent: threads can share
/// them. False for a type without kernels.
template <class RowOf>
bool pack_rows(DType type, std::size_t k, std::size_t first_group, std::size_t groups, RowOf&& row_of, std::byte* out) {
  for (std::size_t g = 0; g < groups; ++g) {
    const std::byte* rows[kX16Rows];
    for (std::size_t r = 0; r < kX16Rows; ++r) rows[r] = row_of((first_group + g) * kX16Rows + r);
    std::byte* group = out + g * x16_group_bytes(type, k);
    switch (type) {
      case DType::kF32:
        x16_pack_elements<std::uint32_t>(rows, k, group);
        break;
      case DType::kF16:
      case DType::kBF16:
        x16_pack_elements<std::uint16_t>(rows, k, group);
        break;
      case DType::kQ8_0:
        x16_pack_blocks<BlockQ8_0>(rows, k, group);
        break;
      case DType::kQ4_0:
        x16_pack_blocks<BlockQ4_0>(rows, k, group);
        break;
      case DType::kQ4_1:
        x16_pack_blocks<BlockQ4_1>(rows, k, group);
        break;
      default:
        return false;
    }
  }
  return true;
}

/// The inverse: row_of(row) gives where the native bytes of a row go, nullptr to skip it.
template <class RowOf>
bool unpack_rows(DType type, std::size_t k, std::size_t first_group, std::size_t groups, const std::byte* packed,
                 RowOf&& row_of) {
  for (std::size_t g = 0; g < groups; ++g) {
    std::byte* rows[kX16Rows];
    for (std::size_t r = 0; r < kX16Rows; ++r) rows[r] = row_of((first_group + g) * kX16Rows + r);
    const std::byte* group = packed + g * x16_group_bytes(type, k);
    switch (type) {
      case DType::kF32:
        x16_unpack_elements<std::uint32_t>(group, k, rows);
        break;
      case DType::kF16:
      case DType::kBF16:
        x16_unpack_elements<std::uint16_t>(group, k, rows);
        break;
      case DType::kQ8_0:
        x16_unpack_blocks<BlockQ8_0>(group, k, rows);
        break;
      case DType::kQ4_0:
        x16_unpack_blocks<BlockQ4_0>(group, k, rows);
        break;
      case DType::kQ4_1:
        x16_unpack_blocks<BlockQ4_1>(group, k, rows);
        break;
      default:
        return false;
    }
  }
  return true;
}

template <class Block>
void x16_dequantize_blocks(const std::byte* group, std::size_t k, std::size_t lane, float* out) {
  for (std::size_t b = 0; b < k / 32; ++b) {
    std::byte native[sizeof(Block)];
    x16_move_block<Block, false>(native, group, k, b, lane);
    dequantize_blocks<Block>(native, 32, out + 32 * b);
  }
}

/// Row `row` of a weight at `base` to k floats. False for a type without kernels.
inline bool dequantize_row(DType type, Layout layout, const std::byte* base, std::size_t k, std::size_t row,
                           float* out) {
  if (layout == Layout::kNative) return dequantize_native(type, base + row * row_bytes(type, k), k, out);
  if (layout != Layout::kX16) return false;
  const std::byte* group = base + row / kX16Rows * x16_group_bytes(type, k);
  const std::size_t lane = row % kX16Rows;
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      for (std::size_t i = 0; i < k; ++i) out[i] = float_element(type, group, i * kX16Rows + lane);
      return true;
    case DType::kQ8_0:
      x16_dequantize_blocks<BlockQ8_0>(group, k, lane, out);
      return true;
    case DType::kQ4_0:
      x16_dequantize_blocks<BlockQ4_0>(group, k, lane, out);
      return true;
    case DType::kQ4_1:
      x16_dequantize_blocks<BlockQ4_1>(group, k, lane, out);
      return true;
    default:
      return false;
  }
}

}  // namespace forge::quant
