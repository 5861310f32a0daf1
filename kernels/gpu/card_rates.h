#pragma once
// Kernels that measure a card: how fast it reads memory, and how fast it executes its matrix instruction. They are
// compiled like the kernels of plans. card_rates_io.h has the layouts of what they read and write.

#include "kernels/gpu/card_rates_io.h"
#include "kernels/gpu/matrix_tile.h"

namespace forge::gpu {

/// Reads a buffer once, as kernels read weights. In a step a block reads kReadStepBytes that follow each other, with
/// kReadLoads loads of 16 bytes in flight in each thread; the grid's blocks read neighbouring steps.
template <class C>
struct ReadRateKernel {
  static constexpr int kThreads = card_rates::kReadThreads, kLoads = card_rates::kReadLoads;
  using Args = ReadRateArgs;

  FORGE_DEVICE static void run(const Args& args) {
    u32 sum = 0;
    FORGE_LOOP
    for (long long step = block_id(); step < args.steps; step += args.blocks) {
      const u32* from = args.in + (step * (kLoads * kThreads) + thread_id()) * 4;
      U32x4 units[kLoads];
      FORGE_UNROLL
      for (int i = 0; i < kLoads; ++i) units[i] = load16_once(from + i * kThreads * 4);
      FORGE_UNROLL
      for (int i = 0; i < kLoads; ++i) sum += units[i].at[0] + units[i].at[1] + units[i].at[2] + units[i].at[3];
    }
    args.out[block_id() * kThreads + thread_id()] = sum;
  }
};

#if FORGE_MATRIX != FORGE_MATRIX_NONE
/// Multiplies fragments that stay in registers, over and over: kMatrixTiles instructions of a wave do not depend on
/// each other. Factors are F16 and sums f32, as in most kernels of plans; with BF16 the instruction is as fast on all
/// targets.
template <class C>
struct MatrixRateKernel {
  using Tile = NativeTile;
  using Fragments = typename Tile::Fragments;
  static constexpr int kThreads = card_rates::kMatrixWaves * kWave, kA = card_rates::kMatrixA,
                       kB = card_rates::kMatrixB, kTiles = card_rates::kMatrixTiles;
  static_assert(Tile::kM == card_rates::kMatrixRows && Tile::kK == card_rates::kMatrixDepth,
                "the host computes sums of this shape");
  using Args = MatrixRateArgs;

  /// Two neighbouring elements of a row, which are a word of a fragment.
  FORGE_DEVICE static u32 pair(int factor, int row, int k) {
    return f16_pair(static_cast<float>(card_rates::element(factor, row, k)),
                    static_cast<float>(card_rates::element(factor, row, k + 1)));
  }

  FORGE_DEVICE static void run(const Args& args) {
    const int lane = lane_id(), wave = block_id() * card_rates::kMatrixWaves + wave_id();
    u32 a[kA][Fragments::kA / 2], b[kB][Fragments::kB / 2];
    FORGE_UNROLL
    for (int m = 0; m < kA; ++m) {
      FORGE_UNROLL
      for (int w = 0; w < Fragments::kA / 2; ++w) a[m][w] = pair(m, Tile::a_row(lane, 2 * w), Tile::a_k(lane, 2 * w));
    }
    FORGE_UNROLL
    for (int n = 0; n < kB; ++n) {
      FORGE_UNROLL
      for (int w = 0; w < Fragments::kB / 2; ++w)
        b[n][w] = pair(kA + n, Tile::b_row(lane, 2 * w), Tile::b_k(lane, 2 * w));
    }
    float sums[kTiles][Fragments::kC] = {};
    FORGE_LOOP
    for (long long round = 0; round < args.rounds; ++round) {
      FORGE_UNROLL
      for (int again = 0; again < card_rates::kMatrixUnrolled; ++again) {
        FORGE_UNROLL
        for (int t = 0; t < kTiles; ++t) multiply_fragments<Tile>(a[t / kB], b[t % kB], sums[t]);
      }
    }
    FORGE_UNROLL
    for (int i = 0; i < Fragments::kC; ++i) {
      float sum = 0;
      FORGE_UNROLL
      for (int t = 0; t < kTiles; ++t) sum = wave % kTiles == t ? sums[t][i] : sum;
      args.out[(wave * Tile::kM + Tile::c_row(lane, i)) * Tile::kN + Tile::c_column(lane, i)] = sum;
    }
  }
};
#endif

}  // namespace forge::gpu
