#pragma once
// The tile registers of Intel AMX. tests/kernels/tile_registers_model-inl.h has the same interface and defines each
// operation in plain C++.
//
// These are asm statements instead of intrinsics. g++ 12's intrinsics are asm statements too, but they do not declare
// which memory they touch: the compiler then drops the stores that fill the configuration before _tile_loadconfig, or
// moves reads of a stored tile. Here every memory access is declared, and shapes are constants, so there is no store to
// drop.

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/tile_shapes.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

/// Template parameters are the numbers of tile registers, 0..7. load and store: `stride` bytes between rows.
struct Tiles {
  FORGE_INLINE static void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
  FORGE_INLINE static void release() { asm volatile("tilerelease"); }
  template <int tile>
  FORGE_INLINE static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  template <int tile>
  FORGE_INLINE static void load(const void* from, std::size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  FORGE_INLINE static void store(void* to, std::size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
  }
  template <int sum, int a, int b>
  FORGE_INLINE static void dot_signed_unsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
  }
  template <int sum, int a, int b>
  FORGE_INLINE static void dot_signed_signed() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
  }
  template <int sum, int a, int b>
  FORGE_INLINE static void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
  }
};

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
