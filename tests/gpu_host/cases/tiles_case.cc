// One wave multiplies one matrix tile over several k steps, for each tile layout of this wave size.

#include "kernels/gpu/matrix_tile.h"
#include "tests/gpu_host/cases/case_args.h"

using namespace forge::gpu;

namespace {

template <class Tile>
void put(i8* bytes, int i, float value) {
  bytes[i] = static_cast<i8>(value);
}
template <class Tile>
void put(u32* pairs, int i, float value) {
  const u32 bits = Tile::kF16 ? f16_of_f32(value) : __builtin_bit_cast(u32, value) >> 16;
  pairs[i / 2] = i % 2 == 0 ? bits : pairs[i / 2] | bits << 16;
}

template <class Tile>
void run_tile(const TileArgs& args) {
  constexpr int kK = kTileSteps * Tile::kK;
  const int lane = lane_id();
  typename Tile::Fragments f = {};
  for (int k0 = 0; k0 < kK; k0 += Tile::kK) {
    for (int i = 0; i < Tile::Fragments::kA; ++i)
      put<Tile>(f.a, i, load(args.a + Tile::a_row(lane, i) * kK + k0 + Tile::a_k(lane, i)));
    for (int i = 0; i < Tile::Fragments::kB; ++i)
      put<Tile>(f.b, i, load(args.bt + Tile::b_row(lane, i) * kK + k0 + Tile::b_k(lane, i)));
    multiply_tile(Tile(), f);
  }
  for (int i = 0; i < Tile::Fragments::kC; ++i)
    args.c[Tile::c_row(lane, i) * Tile::kN + Tile::c_column(lane, i)] = static_cast<float>(f.c[i]);
}

}  // namespace

#define FORGE_CASE(name, Tile)             \
  FORGE_KERNEL(name, 1, kWave, TileArgs) { \
    run_tile<Tile>(args);                  \
  }

FORGE_CASE(native, NativeTile)
FORGE_CASE(native_int8, NativeInt8Tile)
FORGE_CASE(native_bf16, NativeBf16Tile)
#if FORGE_WAVE == 64
FORGE_CASE(mfma, MfmaF16Tile)
FORGE_CASE(mfma_int8_gfx90a, MfmaInt8Gfx90aTile)
FORGE_CASE(mfma_int8_gfx942, MfmaInt8Gfx942Tile)
FORGE_CASE(mfma_bf16, MfmaBf16Tile)
#else
FORGE_CASE(wmma_bf16_gfx11, WmmaBf16Gfx11Tile)
FORGE_CASE(wmma_bf16_gfx12, WmmaBf16Gfx12Tile)
FORGE_CASE(mma_bf16, MmaBf16Tile)
FORGE_CASE(wmma_gfx11, WmmaF16Gfx11Tile)
FORGE_CASE(wmma_gfx12, WmmaF16Gfx12Tile)
FORGE_CASE(wmma_int8_gfx11, WmmaInt8Gfx11Tile)
FORGE_CASE(wmma_int8_gfx12, WmmaInt8Gfx12Tile)
FORGE_CASE(mma, MmaF16Tile)
FORGE_CASE(mma_int8, MmaInt8Tile)
// Both halves of a gfx11 wave hold A; this kernel gives the halves different values.
FORGE_KERNEL(halves_differ, 1, kWave, TileArgs) {
  NativeTile::Fragments f = {};
  f.a[3] = static_cast<u32>(lane_id());
  multiply_tile(NativeTile(), f);
  args.c[lane_id()] = f.c[0];
}
#endif
