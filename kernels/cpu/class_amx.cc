// What CpuClass::kAvx512VnniAmx has beyond CpuClass::kAvx512Vnni: matmuls of many rows by tiles. Flags are in
// meson.build.
#define FORGE_CPU_NAMESPACE class_amx
#define FORGE_CPU_PLAIN class_avx512vnni

#include "kernels/cpu/tiles_amx-inl.h"
// the kernels follow the tiles
#include "kernels/cpu/tiles_table-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

MatmulFn matmul_of_blocks(DType type);
MatmulFn matmul_of_blocks(DType type) {
  return matmul_by_tiles_of<TilePlan<12, 2, true>>(type, quant::AllBlocks{});
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
