#pragma once
// The functions of one compilation of the tile kernels that tests call.

#include "tests/kernels/tile_registers_model-inl.h"
// Must come after the tile registers, which the kernels use.
#include "kernels/cpu/matmul/tiles_table-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// One type of each kind: instrumenting all of them would take minutes.
using SomeBlocks =
    quant::BlockRows<quant::BlockRow<DType::kQ8_0, quant::BlockQ8_0>, quant::BlockRow<DType::kQ4_0, quant::BlockQ4_0>,
                     quant::BlockRow<DType::kQ4_1, quant::BlockQ4_1>, quant::BlockRow<DType::kQ4_K, quant::BlockQ4_K>,
                     quant::BlockRow<DType::kQ6_K, quant::BlockQ6_K>>;

MatmulFn matmul_of_blocks(DType type);
MatmulFn prompt_matmul_of_blocks(DType type);
MatmulFn matmul_of_blocks(DType type) {
  return matmul_by_tiles_of<kTileCut, 16>(type, FORGE_TEST_BLOCKS{});
}
MatmulFn prompt_matmul_of_blocks(DType type) {
  return prompt_matmul_of(type, FORGE_TEST_BLOCKS{});
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
