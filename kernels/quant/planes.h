#pragma once
// planes, the layout of weights that GPU kernels stream: all quants of a weight, row after row, then all scales.
//   quants: Q8_0: k int8 a row; Q4_0, Q4_1: k/2 bytes a row, block after block, ggml's nibble order.
//   scales: a row's k/32 f16 d (Q8_0, Q4_0) or k/32 pairs of f16 d, m (Q4_1).
//   F32, F16, BF16: as the file has them. The K types, Q5, IQ4, MXFP4 and TQ2_0: planes_codes.h.
// It takes the native bytes of the rows. k is a multiple of 32, so every block's quants start at a multiple of 16
// and a wave's lanes read whole lines with 16-byte loads; in the native layout a block of 34 bytes never is aligned.

#include "kernels/quant/planes_codes.h"
#include "kernels/quant/rows.h"

namespace forge::quant {

/// Bytes of a block's scales; 0 for the types that have none.
constexpr std::size_t planes_scale_bytes(DType type) {
  return type == DType::kQ8_0 || type == DType::kQ4_0 ? 2 : type == DType::kQ4_1 ? 4 : 0;
}
/// Do a block's planes take the bytes of the file? The grids of IQ1 to IQ3 and what is packed closer than pairs of bits
/// would grow, and have no kernels.
template <class Block>
constexpr bool has_plane_codes() {
  if constexpr (HasPacking<Block>)
    return PlanesCodes<Block>::kBlockBytes == sizeof(Block);
  else
    return false;
}
/// Does a type stand in planes of codes (planes_codes.h)?
constexpr bool is_plane_codes(DType type) {
  bool codes = false;
  with_block(type, [&]<class Block>(std::type_identity<Block>) { codes = has_plane_codes<Block>(); });
  return codes;
}
/// The types that have this layout, which is what kernels of the GPUs compute with.
constexpr bool has_planes(DType type) {
  return is_float(type) || planes_scale_bytes(type) != 0 || is_plane_codes(type);
}
/// Bytes of a row's quants, of the types that are no planes of codes.
constexpr std::size_t planes_quant_bytes(DType type, std::size_t k) {
  return row_bytes(type, k) - k / 32 * planes_scale_bytes(type);
}
/// Units of a row that a lane takes at once: 32 columns of codes, or else 16 bytes.
constexpr std::size_t planes_units(DType type, std::size_t k) {
  return is_plane_codes(type) ? k / 32 : planes_quant_bytes(type, k) / 16;
}
/// Registers of 4 bytes for a unit on its way: 16 bytes and a scale, or what planes of codes have.
constexpr std::size_t planes_unit_registers(DType type) {
  std::size_t registers = 5;
  with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (has_plane_codes<Block>()) {
      using Planes = PlanesCodes<Block>;
      registers = (Planes::kLowBytes + Planes::kHighBytes) / 4 + (Planes::kHalvesBytes != 0 ? 1 : 0) +
                  (Planes::kNumberBits != 0 ? 1 : 0) + (Planes::kTopBits != 0 ? 1 : 0);
    }
  });
  return registers;
}
/// Where the scales start, from the start of the weight.
constexpr std::size_t planes_scales_offset(DType type, std::size_t rows, std::size_t k) {
  return rows * planes_quant_bytes(type, k);
}

/// Moves row `row` of `rows` between its native bytes and the planes; `Pack` says which way.
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

/// A row of a type of planes_codes.h.
inline void planes_pack_row(DType type, std::size_t rows, std::size_t k, std::size_t row, const std::byte* native,
                            std::byte* planes) {
  with_block(type, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (has_plane_codes<Block>())
      for (std::size_t b = 0; b < k / Block::kElems; ++b) {
        Block block;
        std::memcpy(&block, native + b * sizeof(Block), sizeof(Block));
        planes_pack_codes(block, rows, k, row, b, reinterpret_cast<u8*>(planes));
      }
  });
}

/// Rows first..first+count-1 of a weight of `rows` rows into `planes`, where the whole weight goes; row_of(row) gives a
/// row's native bytes. Rows are independent: threads can share them. False for a type without kernels.
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

/// The inverse of pack_planes: row_of(row) gives where a row's native bytes go. False also for planes of codes.
template <class RowOf>
bool unpack_planes(DType type, std::size_t rows, std::size_t k, std::size_t first, std::size_t count,
                   const std::byte* planes, RowOf&& row_of) {
  if (!has_planes(type) || is_plane_codes(type)) return false;
  for (std::size_t row = first; row < first + count; ++row)
    planes_move_row<false>(type, rows, k, row, row_of(row), planes);
  return true;
}

}  // namespace forge::quant
