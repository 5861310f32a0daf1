#pragma once
// The names of weight formats in device sources, and the configuration of the kernels that repack weights.

#include <cstdint>
#include <string>

#include "codegen/gpu/source/kernel_text.h"
#include "kernels/quant/dtype.h"

namespace forge::codegen {

/// The block type of a weight type in planes of codes: "quant::BlockQ4_K".
std::string block_type(DType type);
/// The format of a weight [rows][k]: "WeightQ8_0<16, 512>" (kernels/gpu/formats.h, codes.h). The type must have
/// kernels.
std::string weight_text(DType type, std::int64_t rows, std::int64_t k);

/// A repack kernel (kernels/gpu/repack.h) for a weight [rows][k].
struct RepackShape {
  DType type{};
  bool codes = false;                                             ///< RepackCodes, else RepackPlanes
  std::int64_t rows = 0, k = 0, threads = 0, blocks_per_row = 0;  ///< blocks of the grid that share a row
};
/// Writes the kernel's configuration.
void write_repack(ConfigText& config, const RepackShape& shape);

/// The format that kernels know rows of activations of this type by (kernels/gpu/activations.h).
int row_format(DType type);

}  // namespace forge::codegen
