#pragma once
// Layout "planes": how weights lie in GPU memory. All quants of the weight come first, row after row, then all scales.
//   quants  Q8_0: k int8 per row. Q4_0, Q4_1: k/2 bytes per row, block after block, nibbles in ggml's order.
//   scales  per row k/32 f16 d (Q8_0, Q4_0), or k/32 pairs of f16 d, m (Q4_1)
// F32, F16 and BF16 stay as in the file. IQ1, IQ2 and IQ3 are in planes_grids.h, all other types in planes_codes.h.
//
// Example: Q4_0, 2 rows, k = 64 (two blocks b per row, 16 bytes of quants each):
//   | r0 b0 | r0 b1 | r1 b0 | r1 b1 | d: r0b0 r0b1 r1b0 r1b1 |
//
// These types take the native number of bytes. k is a multiple of 32, so each block's quants start at a multiple of 16
// and the lanes of a wave read whole cache lines with 16-byte loads. Native blocks of 34 or 18 bytes are never aligned.

#include "kernels/quant/planes_codes.h"
#include "kernels/quant/planes_grids.h"
#include "kernels/quant/rows.h"

namespace forge::quant {

/// Bytes of a block's scales for Q8_0, Q4_0 and Q4_1; 0 for all other types.
constexpr std::size_t planes_scale_bytes(DType type) {
  return type == DType::kQ8_0 || type == DType::kQ4_0 ? 2 : type == DType::kQ4_1 ? 4 : 0;
}
/// True if blocks of the type are packed one by one: into planes of codes (planes_codes.h) or grids (planes_grids.h).
template <class Block>
constexpr bool has_plane_codes() {
  return HasPacking<Block>;
}
constexpr bool is_plane_codes(DType type) {
  bool codes = false;
  with_block(type, [&]<class Block>(std::type_identity<Block>) { codes = has_plane_codes<Block>(); });
  return codes;
}
/// True if the type is stored as planes of grids.
constexpr bool is_plane_grids(DType type) {
  bool grids = false;
  with_block(type, [&]<class Block>(std::type_identity<Block>) { grids = HasGrid<Block>; });
  return grids;
}
/// True for the types that GPU kernels can multiply: those that have this layout.
constexpr bool has_planes(DType type) {
  return is_float(type) || planes_scale_bytes(type) != 0 || is_plane_codes(type);
}
/// Bytes of a row's quants. Not for planes of codes.
constexpr std::size_t planes_quant_bytes(DType type, std::size_t k) {
  return row_bytes(type, k) - k / 32 * planes_scale_bytes(type);
}
/// Units of a row that GPU lanes load one at a time: 32 columns for planes of codes, else 16 bytes.
constexpr std::size_t planes_units(DType type, std::size_t k) {
  return is_plane_codes(type) ? k / 32 : planes_quant_bytes(type, k) / 16;
}
/// 4-byte registers that one unit takes while it is loaded: 16 bytes and a scale, or for planes of codes its piece of
/// each plane. Code generation limits the number of loads in flight with it.
constexpr std::size_t planes_unit_registers(DType type) {
  std::size_t registers = 5;
  with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (HasGrid<Block>) {
      constexpr GridSizes kSizes = GridLayout<Block>::kSizes;
      registers = kSizes.first / 4 + (kSizes.second != 0 ? 1 : 0) + (kSizes.small != 0 ? 1 : 0) + (kSizes.tail + 3) / 4;
    } else if constexpr (has_plane_codes<Block>()) {
      using Planes = PlanesCodes<Block>;
      registers = (Planes::kLowBytes + Planes::kHighBytes) / 4 + (Planes::kHalvesBytes != 0 ? 1 : 0) +
                  (Planes::kNumberBits != 0 ? 1 : 0) + (Planes::kTopBits != 0 ? 1 : 0);
    }
  });
  return registers;
}
/// Bytes that a row takes in the layout.
constexpr std::size_t planes_row_bytes(DType type, std::size_t k) {
  std::size_t bytes = row_bytes(type, k);
  with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (has_plane_codes<Block>() && !HasGrid<Block>)
      bytes = k / Block::kElems * PlanesCodes<Block>::kBlockBytes;
  });
  return bytes;
}
/// Byte offset of the scales from the start of the weight.
constexpr std::size_t planes_scales_offset(DType type, std::size_t rows, std::size_t k) {
  return rows * planes_quant_bytes(type, k);
}

/// Copies row `row` of `rows` between its native bytes and the planes. Pack true: native to planes; false: back.
template <bool Pack, class NativeByte, class PlaneByte>
void planes_move_row(DType type, std::size_t rows, std::size_t k, std::size_t row, NativeByte* native,
                     PlaneByte* planes) {
  const auto move = [](NativeByte* at_native, PlaneByte* at_planes, std::size_t bytes) {
    if constexpr (Pack)
      std::memcpy(at_planes, at_native, bytes);
    else
      std::memcpy(at_native, at_planes, bytes);
  };
  const std::size_t scale = planes_scale_bytes(type);
  PlaneByte* quants = planes + row * planes_quant_bytes(type, k);
  if (scale == 0) return move(native, quants, row_bytes(type, k));
  const std::size_t block = dtype_info(type).block_bytes, quant = block - scale;
  PlaneByte* scales = planes + planes_scales_offset(type, rows, k) + row * (k / 32) * scale;
  for (std::size_t b = 0; b < k / 32; ++b) {
    move(native + b * block, scales + b * scale, scale);
    move(native + b * block + scale, quants + b * quant, quant);
  }
}

/// Packs one row of a type whose blocks are packed one by one.
inline void planes_pack_row(DType type, std::size_t rows, std::size_t k, std::size_t row, const std::byte* native,
                            std::byte* planes) {
  with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (has_plane_codes<Block>())
      for (std::size_t b = 0; b < k / Block::kElems; ++b) {
        Block block;
        std::memcpy(&block, native + b * sizeof(Block), sizeof(Block));
        planes_pack_block(block, rows, k, row, b, reinterpret_cast<u8*>(planes));
      }
  });
}

/// Packs rows [first, first + count) of a weight of `rows` rows into `planes`, the start of the whole weight.
/// row_of(row) returns a row's native bytes. Rows are independent, so threads can share the work. Returns false for a
/// type without GPU kernels.
template <class RowOf>
bool pack_planes(DType type, std::size_t rows, std::size_t k, std::size_t first, std::size_t count, RowOf&& row_of,
                 std::byte* planes) {
  if (!has_planes(type)) return false;
  for (std::size_t row = first; row < first + count; ++row)
    if (is_plane_codes(type))
      planes_pack_row(type, rows, k, row, row_of(row), planes);
    else
      planes_move_row<true>(type, rows, k, row, row_of(row), planes);
  return true;
}

/// The inverse of pack_planes: row_of(row) returns where the row's native bytes go. Returns false also for planes of
/// codes, which have no inverse.
template <class RowOf>
bool unpack_planes(DType type, std::size_t rows, std::size_t k, std::size_t first, std::size_t count,
                   const std::byte* planes, RowOf&& row_of) {
  if (!has_planes(type) || is_plane_codes(type)) return false;
  for (std::size_t row = first; row < first + count; ++row)
    planes_move_row<false>(type, rows, k, row, row_of(row), planes);
  return true;
}

}  // namespace forge::quant
