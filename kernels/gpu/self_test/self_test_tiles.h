#pragma once
// A kernel of the GPU self-test: products of the target's matrix tiles, with fragments loaded by their lane tables and
// through shared memory. Only for targets that have matrix instructions.

#include "kernels/gpu/matrix_tile.h"
#include "kernels/gpu/self_test/self_test_io.h"

namespace forge::gpu {

/// One wave. Factors are small integers that every format represents exactly, so all sums are exact.
template <class C>
struct SelfTestTiles {
  static constexpr int kThreads = kWave, kBlocks = 1;
  static constexpr int kSide = self_test::kTileSide, kDepth = self_test::kTileDepth;
  using Args = SelfTestArgs;
  struct Lds {
    Shared<U32x4, 2 * kSide * kUnitsOfRow> units;  ///< 32 columns of A, then of Bt
  };

  FORGE_DEVICE static i32 factor(const Args& args, int row, int k) {
    return static_cast<i32>(load(args.in + row * kDepth + k));
  }
  template <class Tile>
  FORGE_DEVICE static u32 bits_of(i32 value) {
    const float number = static_cast<float>(value);
    return Tile::kF16 ? f16_of_f32(number) : __builtin_bit_cast(u32, number) >> 16;
  }
  template <class Tile>
  FORGE_DEVICE static void put_factor(i8* bytes, int i, i32 value) {
    bytes[i] = static_cast<i8>(value);
  }
  template <class Tile>
  FORGE_DEVICE static void put_factor(u32* pairs, int i, i32 value) {
    pairs[i / 2] = i % 2 == 0 ? bits_of<Tile>(value) : pairs[i / 2] | bits_of<Tile>(value) << 16;
  }
  template <class Tile, class Sum>
  FORGE_DEVICE static void put_sum(const Args& args, int result, int column0, int i, Sum sum) {
    const int row = Tile::c_row(lane_id(), i), column = column0 + Tile::c_column(lane_id(), i);
    args.out[(result * kSide + row) * kSide + column] = static_cast<u32>(static_cast<i32>(sum));
  }

  /// Each lane loads the elements that the tile's table assigns to it.
  template <class Tile>
  FORGE_DEVICE static void by_table(const Args& args, int result) {
    using Fragments = typename Tile::Fragments;
    static_assert(Tile::kM == kSide && kSide % Tile::kN == 0 && kDepth % Tile::kK == 0, "the product is whole tiles");
    FORGE_LOOP
    for (int column0 = 0; column0 < kSide; column0 += Tile::kN) {
      Fragments f = {};
      FORGE_LOOP
      for (int k0 = 0; k0 < kDepth; k0 += Tile::kK) {
        FORGE_UNROLL
        for (int i = 0; i < Fragments::kA; ++i)
          put_factor<Tile>(f.a, i, factor(args, Tile::a_row(lane_id(), i), k0 + Tile::a_k(lane_id(), i)));
        FORGE_UNROLL
        for (int i = 0; i < Fragments::kB; ++i)
          put_factor<Tile>(f.b, i,
                           factor(args, kSide + column0 + Tile::b_row(lane_id(), i), k0 + Tile::b_k(lane_id(), i)));
        multiply_tile(Tile(), f);
      }
      FORGE_UNROLL
      for (int i = 0; i < Fragments::kC; ++i) put_sum<Tile>(args, result, column0, i, f.c[i]);
    }
  }

  /// As in matmul_tiles.h: units of eight columns in shared memory, fetched and multiplied 32 columns at a time.
  template <class Tile>
  FORGE_DEVICE static void by_units(const Args& args, int result, Lds& lds) {
    constexpr int kTiles = kSide / Tile::kN, kColumns = 8 * kUnitsOfRow;
    float sums[kTiles][Tile::Fragments::kC] = {};
    FORGE_LOOP
    for (int k0 = 0; k0 < kDepth; k0 += kColumns) {
      FORGE_LOOP
      for (int unit = thread_id(); unit < 2 * kSide * kUnitsOfRow; unit += kThreads) {
        const int row = unit / kUnitsOfRow, u = unit % kUnitsOfRow;
        U32x4 words;
        FORGE_UNROLL
        for (int w = 0; w < 4; ++w)
          words.at[w] = bits_of<Tile>(factor(args, row, k0 + 8 * u + 2 * w)) |
                        bits_of<Tile>(factor(args, row, k0 + 8 * u + 2 * w + 1)) << 16;
        lds.units.set(unit_place(row, u), words);
      }
      barrier();
      U32x4 a[Tile::kAUnits];
      fetch_a<Tile>(lds.units, 0, a);
      FORGE_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        U32x4 b[Tile::kBUnits];
        fetch_b<Tile>(lds.units, (kSide + n * Tile::kN) * kUnitsOfRow, b);
        FORGE_UNROLL
        for (int half = 0; half < kHalves; ++half) multiply_half<Tile>(half, a, b, sums[n]);
      }
      barrier();
    }
    FORGE_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      FORGE_UNROLL
      for (int i = 0; i < Tile::Fragments::kC; ++i) put_sum<Tile>(args, result, n * Tile::kN, i, sums[n][i]);
    }
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    by_table<NativeTile>(args, self_test::kHalfTile);
    by_table<NativeBf16Tile>(args, self_test::kBf16Tile);
    by_table<NativeInt8Tile>(args, self_test::kInt8Tile);
    by_units<NativeTile>(args, self_test::kHalfUnits, lds);
    by_units<NativeBf16Tile>(args, self_test::kBf16Units, lds);
  }
};

}  // namespace forge::gpu
