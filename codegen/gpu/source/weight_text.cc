#include "codegen/gpu/source/weight_text.h"

#include <fmt/format.h>

#include "kernels/quant/planes.h"
#include "support/error.h"

namespace forge::codegen {

std::string block_type(DType type) {
  std::string name(dtype_name(type));
  for (char& letter : name)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return "quant::Block" + name;
}

std::string weight_text(DType type, std::int64_t rows, std::int64_t k) {
  if (quant::is_plane_grids(type)) return fmt::format("WeightGrids<{}, {}, {}>", block_type(type), rows, k);
  if (quant::is_plane_codes(type)) return fmt::format("WeightCodes<{}, {}, {}>", block_type(type), rows, k);
  std::string_view name;
  switch (type) {
    case DType::kF32:
      name = "WeightF32";
      break;
    case DType::kF16:
      name = "WeightF16";
      break;
    case DType::kBF16:
      name = "WeightBf16";
      break;
    case DType::kQ8_0:
      name = "WeightQ8_0";
      break;
    case DType::kQ4_0:
      name = "WeightQ4_0";
      break;
    case DType::kQ4_1:
      name = "WeightQ4_1";
      break;
    default:
      throw Error(ErrorCode::kInternal, "a weight type has no GPU kernel and was not refused");
  }
  return fmt::format("{}<{}, {}>", name, rows, k);
}

void write_repack(ConfigText& config, const RepackShape& shape) {
  const auto native = static_cast<std::int64_t>(row_bytes(shape.type, static_cast<std::size_t>(shape.k)));
  const auto scales = static_cast<std::int64_t>(quant::planes_scale_bytes(shape.type));
  if (shape.codes) {
    config.use("Block", block_type(shape.type)).number("kRows", shape.rows).number("kK", shape.k);
  } else {
    const auto block = scales == 0 ? native : static_cast<std::int64_t>(dtype_info(shape.type).block_bytes);
    config.number("kRows", shape.rows)
        .number("kK", shape.k)
        .number("kRowWords", native / 2)
        .number("kBlockWords", block / 2)
        .number("kScaleWords", scales / 2);
  }
  config.number("kThreads", shape.threads).number("kBlocksPerRow", shape.blocks_per_row);
}

int row_format(DType type) {
  switch (type) {
    case DType::kF16A:
      return 16;
    case DType::kBF16:
      return 17;
    case DType::kF16:
      return 18;
    default:
      return activation_terms(type);
  }
}

}  // namespace forge::codegen
