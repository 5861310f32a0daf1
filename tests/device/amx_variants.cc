// Ways to cut a matmul by tiles, for amx_check to compare.
#define FORGE_CPU_NAMESPACE amx_check_variants
#define FORGE_CPU_PLAIN class_avx512vnni

#include "kernels/cpu/tiles_amx-inl.h"
// the kernels follow the tiles
#include "kernels/cpu/tiles_table-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

using Blocks =
    quant::BlockRows<quant::BlockRow<DType::kQ8_0, quant::BlockQ8_0>, quant::BlockRow<DType::kQ4_0, quant::BlockQ4_0>,
                     quant::BlockRow<DType::kQ4_1, quant::BlockQ4_1>, quant::BlockRow<DType::kQ4_K, quant::BlockQ4_K>,
                     quant::BlockRow<DType::kQ6_K, quant::BlockQ6_K>>;

MatmulFn variant(int number, DType type);
MatmulFn variant(int number, DType type) {
  return number == 0   ? matmul_by_tiles_of<4, 16>(type, Blocks{})
         : number == 1 ? matmul_by_tiles_of<3, 16>(type, Blocks{})
         : number == 2 ? matmul_by_tiles_of<2, 16>(type, Blocks{})
         : number == 3 ? matmul_by_tiles_of<104, 16>(type, Blocks{})
         : number == 4 ? matmul_by_tiles_of<108, 16>(type, Blocks{})
                       : nullptr;
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
