// Embedding lookup. Each row is dequantised on its own, so the table is never expanded as a whole.

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/quant/x16.h"

namespace forge::cpu {

bool embed_rows(DType type, quant::Layout layout, const std::byte* table, std::size_t rows, const std::int32_t* ids,
                Tile out) {
  if (!quant::has_kernels(type)) return false;
  for (std::size_t t = 0; t < out.rows; ++t) {
    float* row = out.data + t * out.stride;
    if (ids[t] < 0 || static_cast<std::size_t>(ids[t]) >= rows)
      std::fill_n(row, out.width, 0.0f);
    else
      quant::dequantize_row(type, layout, table, out.width, static_cast<std::size_t>(ids[t]), row);
  }
  return true;
}

}  // namespace forge::cpu
