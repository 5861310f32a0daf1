// The tile matmul with tile operations that do nothing, which measures the cost of its vector operations alone.
#define FORGE_CPU_NAMESPACE amx_check_vectors
#define FORGE_CPU_PLAIN class_avx512vnni

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/tile_shapes.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

struct Tiles {
  FORGE_INLINE static void configure(const TileShapes&) {}
  FORGE_INLINE static void release() {}
  template <int>
  FORGE_INLINE static void zero() {}
  template <int>
  FORGE_INLINE static void load(const void*, std::size_t) {}
  template <int>
  FORGE_INLINE static void store(void* to, std::size_t) {
    asm volatile("" : : "r"(to) : "memory");
  }
  template <int, int, int>
  FORGE_INLINE static void dot_signed_unsigned() {}
  template <int, int, int>
  FORGE_INLINE static void dot_signed_signed() {}
  template <int, int, int>
  FORGE_INLINE static void dot_bf16() {}
};

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE

// Uses the tile operations defined above.
#include "kernels/cpu/matmul/tiles_table-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

MatmulFn matmul_q4_1();
MatmulFn matmul_q4_1() {
  return matmul_by_tiles<DType::kQ4_1, IntTileWeights<FormatQ4_1>, kTileCut>;
}

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
