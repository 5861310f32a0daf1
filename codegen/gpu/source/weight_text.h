#pragma once
// Weights as kernels name them, and how they become planes.

#include <cstdint>
#include <string>

#include "codegen/gpu/source/kernel_text.h"
#include "kernels/quant/dtype.h"

namespace forge::codegen {

/// The block of a type that stands in planes of codes, as device sources name it: "quant::BlockQ4_K".
std::string block_type(DType type);
/// A weight's format as device sources name it: "WeightQ8_0<16, 512>". The type has kernels.
std::string weight_text(DType type, std::int64_t rows, std::int64_t k);

/// How rows of a weight become planes on the card.
struct RepackShape {
  DType type{};
  bool codes = false;  ///< by RepackCodes, else by RepackPlanes
  std::int64_t rows = 0, k = 0, threads = 0, blocks_per_row = 0;
};
/// The configuration of kernels/gpu/repack.h.
void write_repack(ConfigText& config, const RepackShape& shape);

}  // namespace forge::codegen
