#pragma once
// The matmuls of one class for the types that are packed as codes.

#include "kernels/cpu/matmul_codes-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

MatmulFn matmul_of_codes(DType type);
MatmulFn matmul_of_codes(DType type) {
  return matmul_codes_of(type, quant::AllBlocks{});
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
