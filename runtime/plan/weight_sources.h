#pragma once
// Sizes of a weight's sources in the model file.

#include <cstddef>
#include <cstdint>

#include "kernels/quant/dtype.h"
#include "runtime/plan/plan_generated.h"

namespace forge::plan {

/// Number of matrices in one source of the weight.
inline std::int64_t matrices_of(const WeightT& weight) {
  return weight.scattered ? 1 : weight.slices;
}

/// Bytes of the rows and columns that `source` takes. The numbers may be unchecked; the result is then meaningless, but
/// the call is safe.
inline std::uint64_t source_bytes(const WeightT& weight, const WeightSourceT& source) {
  const auto* type = find_dtype(weight.dtype);
  if (type == nullptr) return 0;
  const auto row = static_cast<std::uint64_t>(source.cols) / type->block_elems * type->block_bytes;
  return static_cast<std::uint64_t>(matrices_of(weight)) * static_cast<std::uint64_t>(source.rows) * row;
}

}  // namespace forge::plan
