// What CpuClass::kAvx512VnniAmx has beyond CpuClass::kAvx512Vnni: matmuls of many rows by tiles. Flags are in
// meson.build.
#define FORGE_CPU_NAMESPACE class_amx
#define FORGE_CPU_PLAIN class_avx512vnni

#include "kernels/cpu/tiles_amx-inl.h"
// the kernels follow the tiles
#include "kernels/cpu/matmul_tiles_float-inl.h"
#include "kernels/cpu/tiles_table-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

MatmulFn matmul_of_blocks(DType type);
MatmulFn matmul_of_blocks(DType type) {
  return matmul_by_tiles_of<4>(type, quant::AllBlocks{});
}

/// Of BF16 and F16.
MatmulFn matmul_of_floats(DType type);
MatmulFn matmul_of_floats(DType type) {
  return type == DType::kBF16  ? matmul_float_tiles<TileBf16>
         : type == DType::kF16 ? matmul_float_tiles<TileF16>
                               : nullptr;
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
