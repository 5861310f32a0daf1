#pragma once
// Packs groups of a weight into layout x16 (kernels/quant/x16.h) on the host, when a model is loaded.

#include "kernels/cpu/kernels.h"
#include "kernels/quant/x16.h"

namespace forge::cpu {

/// Packs groups [first_group, first_group + groups) to `out`, which is the place of the first of them. row_of(row)
/// returns the native bytes of a row, or nullptr for a padding row; rows may come from several tensors. Groups are
/// independent, so threads can share the work. Returns false for a type without kernels.
template <class RowOf>
bool pack_rows(const Kernels& kernels, DType type, std::size_t k, std::size_t first_group, std::size_t groups,
               RowOf&& row_of, std::byte* out) {
  const PackFn pack = kernels.pack(type);
  if (pack == nullptr) return false;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::byte* rows[quant::kX16Rows];
    for (std::size_t r = 0; r < quant::kX16Rows; ++r) rows[r] = row_of((first_group + g) * quant::kX16Rows + r);
    pack(rows, k, out + g * quant::x16_group_bytes(type, k));
  }
  return true;
}

}  // namespace forge::cpu
