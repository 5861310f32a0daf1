// What CpuClass::kAvx512VnniAmx has beyond CpuClass::kAvx512VnniBf16: matmuls of many rows by tiles. Flags are in
// meson.build.
#define FORGE_CPU_NAMESPACE class_amx
#define FORGE_CPU_PLAIN class_avx512vnni

#include "kernels/cpu/matmul/tiles_amx-inl.h"
// the kernels follow the tiles
#include "kernels/cpu/matmul/tiles_table-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

MatmulFn matmul_of_blocks(DType type);
MatmulFn prompt_matmul_of_blocks(DType type);
MatmulFn matmul_of_blocks(DType type) {
  // Types with a scale for 16 columns have half the products a tile and as many vector operations: not shown to be
  // faster than VNNI, so they stay there (tests/device/amx_check.cc measures them).
  const MatmulFn tiles = matmul_by_tiles_of<kTileCut, 32>(type, quant::AllBlocks{});
  return tiles != nullptr ? tiles : FORGE_CPU_PLAIN::kTable.matmul_of_codes(type);
}
MatmulFn prompt_matmul_of_blocks(DType type) {
  return prompt_matmul_of(type, quant::AllBlocks{});
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
