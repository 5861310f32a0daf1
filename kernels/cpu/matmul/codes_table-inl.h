#pragma once
// Everything of a class that is instantiated for each of two dozen weight types: packing and the matmuls of packed
// codes. It is included by classes/codes_*.cc, a translation unit beside class_*.cc, so that both compile in parallel.

#include "kernels/cpu/matmul/matmul_codes-inl.h"
#include "kernels/cpu/matmul/pack-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

MatmulFn matmul_of_codes(DType type);
MatmulFn matmul_of_codes(DType type) {
  return matmul_codes_of(type, quant::AllBlocks{});
}

PackFn pack(DType type);
PackFn pack(DType type) {
  if (type == DType::kF32) return pack_elements<std::uint32_t>;
  if (is_float(type)) return pack_elements<std::uint16_t>;
  return pack_of_blocks(type, quant::AllBlocks{});
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
