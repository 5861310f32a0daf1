#pragma once
// planes, the layout of weights that GPU kernels stream: all quants of a weight, row after row, then all scales.
//   quants: Q8_0: k int8 a row; Q4_0, Q4_1: k/2 bytes a row, block after block, ggml's nibble order.
//   scales: a row's k/32 f16 d (Q8_0, Q4_0) or k/32 pairs of f16 d, m (Q4_1).
//   F32, F16, BF16: as the file has them.
// It takes the native bytes of the rows. k is a multiple of 32, so every block's quants start at a multiple of 16
// and a wave's lanes read whole lines with 16-byte loads; in the native layout a block of 34 bytes never is aligned.

#include "kernels/quant/rows.h"

namespace forge::quant {

/// Bytes of a block's scales; 0 for the types that have none.
constexpr std::size_t planes_scale_bytes(DType type) {
  return type == DType::kQ8_0 || type == DType::kQ4_0 ? 2 : type == DType::kQ4_1 ? 4 : 0;
}
/// The types that have this layout, which is what kernels of the GPUs compute with.
constexpr bool has_planes(DType type) {
  return is_float(type) || planes_scale_bytes(type) != 0;
}
/// Bytes of a row's quants.
constexpr std::size_t planes_quant_bytes(DType type, std::size_t k) {
  return row_bytes(type, k) - k / 32 * planes_scale_bytes(type);
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

/// Rows first..first+count-1 of a weight of `rows` rows into `planes`, where the whole weight goes; row_of(row) gives a
/// row's native bytes. Rows are independent: threads can share them. False for a type without kernels.
template <class RowOf>
bool pack_planes(DType type, std::size_t rows, std::size_t k, std::size_t first, std::size_t count, RowOf&& row_of,
                 std::byte* planes) {
  if (!has_planes(type)) return false;
  for (std::size_t row = first; row < first + count; ++row)
    planes_move_row<true>(type, rows, k, row, row_of(row), planes);
  return true;
}

/// The inverse of pack_planes: row_of(row) gives where a row's native bytes go.
template <class RowOf>
bool unpack_planes(DType type, std::size_t rows, std::size_t k, std::size_t first, std::size_t count,
                   const std::byte* planes, RowOf&& row_of) {
  if (!has_planes(type)) return false;
  for (std::size_t row = first; row < first + count; ++row)
    planes_move_row<false>(type, rows, k, row, row_of(row), planes);
  return true;
}

}  // namespace forge::quant
