// The additions of CpuClass::kAvx512VnniAmx to CpuClass::kAvx512VnniBf16: matmuls of many rows with AMX tiles. Its
// compiler flags are in kernels/meson.build.
#define FORGE_CPU_NAMESPACE class_amx
#define FORGE_CPU_PLAIN class_avx512vnni

#include "kernels/cpu/matmul/tiles_amx-inl.h"
// must follow the tiles
#include "kernels/cpu/matmul/tiles_table-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

MatmulFn matmul_of_blocks(DType type);
MatmulFn prompt_matmul_of_blocks(DType type);
/// The matmul of a block type. Types with a scale per 16 columns use VNNI: they have half the products per tile but as
/// many vector operations, and tiles were not shown to be faster (tests/device/amx_check.cc measures them).
MatmulFn matmul_of_blocks(DType type) {
  const MatmulFn tiles = matmul_by_tiles_of<kTileCut, 32>(type, quant::AllBlocks{});
  return tiles != nullptr ? tiles : FORGE_CPU_PLAIN::kTable.matmul_of_codes(type);
}
MatmulFn prompt_matmul_of_blocks(DType type) {
  return prompt_matmul_of(type, quant::AllBlocks{});
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
