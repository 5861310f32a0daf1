// Other splits of the tile matmul, for amx_check to compare.
#define FORGE_CPU_NAMESPACE amx_check_variants
#define FORGE_CPU_PLAIN class_avx512vnni

#include "kernels/cpu/matmul/tiles_amx-inl.h"
// Uses the tile registers included above.
#include "kernels/cpu/matmul/tiles_table-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

using Blocks =
    quant::BlockRows<quant::BlockRow<DType::kQ8_0, quant::BlockQ8_0>, quant::BlockRow<DType::kQ4_0, quant::BlockQ4_0>,
                     quant::BlockRow<DType::kQ4_1, quant::BlockQ4_1>, quant::BlockRow<DType::kQ4_K, quant::BlockQ4_K>,
                     quant::BlockRow<DType::kQ6_K, quant::BlockQ6_K>>;

MatmulFn variant(int number, DType type);
MatmulFn variant(int number, DType type) {
  switch (number) {
    case 0:
      return matmul_by_tiles_of<TileCut{2, 24, 1}, 16>(type, Blocks{});
    case 1:
      return matmul_by_tiles_of<TileCut{2, 16, 2}, 16>(type, Blocks{});
    case 2:
      return matmul_by_tiles_of<TileCut{2, 8, 4}, 16>(type, Blocks{});
    case 3:
      return matmul_by_tiles_of<TileCut{1, 16, 2}, 16>(type, Blocks{});
    case 4:
      return matmul_by_tiles_of<TileCut{3, 16, 2}, 16>(type, Blocks{});
    default:
      return nullptr;
  }
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
