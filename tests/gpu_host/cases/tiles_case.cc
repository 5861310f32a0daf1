// One wave, one tile of the product, several steps deep, for each tile that has this wave.

#include "kernels/gpu/matrix_tile.h"
#include "tests/gpu_host/cases/case_args.h"

using namespace forge::gpu;

namespace {

u16 factor_of(float value, u16) {
  return f16_of_f32(value);
}
i8 factor_of(float value, i8) {
  return static_cast<i8>(value);
}

template <class Tile>
void run_tile(const TileArgs& args) {
  constexpr int kK = kTileSteps * Tile::kK;
  const int lane = lane_id();
  typename Tile::Fragments f = {};
  for (int k0 = 0; k0 < kK; k0 += Tile::kK) {
    for (int i = 0; i < Tile::Fragments::kA; ++i)
      f.a[i] = factor_of(load(args.a + Tile::a_row(lane, i) * kK + k0 + Tile::a_k(lane, i)), f.a[i]);
    for (int i = 0; i < Tile::Fragments::kB; ++i)
      f.b[i] = factor_of(load(args.bt + Tile::b_row(lane, i) * kK + k0 + Tile::b_k(lane, i)), f.b[i]);
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
#if FORGE_WAVE == 64
FORGE_CASE(mfma, MfmaF16Tile)
FORGE_CASE(mfma_wide, MfmaF16WideTile)
FORGE_CASE(mfma_int8_gfx908, MfmaInt8Gfx908Tile)
FORGE_CASE(mfma_int8_gfx942, MfmaInt8Gfx942Tile)
#else
FORGE_CASE(wmma_gfx11, WmmaF16Gfx11Tile)
FORGE_CASE(wmma_gfx12, WmmaF16Gfx12Tile)
FORGE_CASE(wmma_int8_gfx11, WmmaInt8Gfx11Tile)
FORGE_CASE(wmma_int8_gfx12, WmmaInt8Gfx12Tile)
FORGE_CASE(mma, MmaF16Tile)
FORGE_CASE(mma_int8, MmaInt8Tile)
// Both halves of a gfx11 wave hold A: here they differ.
FORGE_KERNEL(halves_differ, 1, kWave, TileArgs) {
  NativeTile::Fragments f = {};
  f.a[3] = static_cast<u16>(lane_id());
  multiply_tile(NativeTile(), f);
  args.c[lane_id()] = f.c[0];
}
#endif
