// One wave, one tile of the product, several steps deep, for each tile that has this wave.

#include "kernels/gpu/matrix_tile.h"
#include "tests/gpu_host/cases/case_args.h"

using namespace forge::gpu;

namespace {

template <class Tile>
void run_tile(const TileArgs& args) {
  constexpr int kK = kTileSteps * Tile::kK;
  const int lane = lane_id();
  typename Tile::Fragments f = {};
  for (int k0 = 0; k0 < kK; k0 += Tile::kK) {
    for (int i = 0; i < Tile::Fragments::kA; ++i)
      f.a[i] = f16_of_f32(load(args.a + Tile::a_row(lane, i) * kK + k0 + Tile::a_k(lane, i)));
    for (int i = 0; i < Tile::Fragments::kB; ++i)
      f.b[i] = f16_of_f32(load(args.bt + Tile::b_row(lane, i) * kK + k0 + Tile::b_k(lane, i)));
    multiply_tile(Tile(), f);
  }
  for (int i = 0; i < Tile::Fragments::kC; ++i)
    args.c[Tile::c_row(lane, i) * Tile::kN + Tile::c_column(lane, i)] = f.c[i];
}

}  // namespace

#define FORGE_CASE(name, Tile)             \
  FORGE_KERNEL(name, 1, kWave, TileArgs) { \
    run_tile<Tile>(args);                  \
  }

FORGE_CASE(native, NativeTile)
#if FORGE_WAVE == 64
FORGE_CASE(mfma, MfmaF16Tile)
#else
FORGE_CASE(wmma_gfx11, WmmaF16Gfx11Tile)
FORGE_CASE(wmma_gfx12, WmmaF16Gfx12Tile)
FORGE_CASE(mma_sm80, MmaF16Sm80Tile)
#endif
