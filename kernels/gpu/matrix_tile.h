#pragma once
// Matrix tiles: C[M][N] += A[M][K] * Bt[N][K]^T by one wave, an instruction each. Which lane holds what is a table
// here; kernels load their fragments by it, and on the host multiply_tile computes by it. Tables: AMD's, as they were
// checked against products on an instruction-level model (l the lane, r = l mod M, g = l div M); NVIDIA's, PTX ISA
// "Matrix Fragments for mma.m16n8k16" and "mma.m16n8k32".
// A tile says: kM, kN, kK; kLanes, the wave's; Fragments: what a lane holds; a_row, a_k, b_row, b_k, c_row, c_column of
// element i of lane l. A and B are f16 or bf16 bits with f32 sums, or int8 with exact i32 sums.
// Tiles of F16 and BF16 also say how 32 columns of k come from shared memory, where a row has them as four units of 16
// bytes: of which row and unit a lane fetches what (kAUnits times a_unit_row, a_unit; b_* alike), and which of the
// words that it then has (four a unit) is word w of its fragment in step s of two. AMD's lanes fetch for themselves,
// and take the 32 columns in any order in which A and B agree. NVIDIA's fetch by ldmatrix (kFetchesMatrices): word j of
// what lane l gets is word l % 4 of the unit that lane 8j + l / 4 named. Of sums, kRowLanes neighbouring lanes share a
// row, and a lane has kRowsOfLane of them: element i is of the lane's row row_of(i). With kPairsInRow elements 2i and
// 2i + 1 are neighbours in one.

#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

template <class Factor, class Sum, int A, int B, int C>
struct TileFragments {
  static constexpr int kA = A, kB = B, kC = C;
  alignas(A * sizeof(Factor) < 16 ? A * sizeof(Factor) : 16) Factor a[A];
  alignas(B * sizeof(Factor) < 16 ? B * sizeof(Factor) : 16) Factor b[B];
  Sum c[C];
};
template <int A, int B, int C>
using Int8Fragments = TileFragments<i8, i32, A, B, C>;

/// Factors of F16 or BF16, two a word.
template <int A, int B, int C>
struct PairFragments {
  static constexpr int kA = A, kB = B, kC = C;
  u32 a[A / 2], b[B / 2];
  float c[C];
};

/// AMD's square tiles: A and B by the same rule, Run elements of k in a lane (all of k where halves of the wave hold
/// the same), C with its column in r.
template <int M, int K, int Run, int Lanes>
struct AmdTile {
  static constexpr int kM = M, kN = M, kK = K, kLanes = Lanes;
  static constexpr int a_row(int lane, int) { return lane % M; }
  static constexpr int a_k(int lane, int i) { return Run == K ? i : lane / M * Run + i; }
  static constexpr int b_row(int lane, int) { return lane % M; }
  static constexpr int b_k(int lane, int i) { return a_k(lane, i); }
  static constexpr int c_column(int lane, int) { return lane % M; }
};

/// mfma_i32_16x16x16i8, gfx90a.
struct MfmaInt8Gfx90aTile : AmdTile<16, 16, 4, 64> {
  using Fragments = Int8Fragments<4, 4, 4>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 4 + i; }
};
/// mfma_i32_16x16x32_i8, gfx942 and gfx950.
struct MfmaInt8Gfx942Tile : AmdTile<16, 32, 8, 64> {
  using Fragments = Int8Fragments<8, 8, 4>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 4 + i; }
};
/// wmma_i32_16x16x16_iu8_w32, gfx11.
struct WmmaInt8Gfx11Tile : AmdTile<16, 16, 16, 32> {
  using Fragments = Int8Fragments<16, 16, 8>;
  static constexpr int c_row(int lane, int i) { return 2 * i + lane / 16; }
};
/// wmma_i32_16x16x16_iu8_w32_gfx12.
struct WmmaInt8Gfx12Tile : AmdTile<16, 16, 8, 32> {
  using Fragments = Int8Fragments<8, 8, 8>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 8 + i; }
};

/// What a lane takes of the units of a row, A like B: one, two or all of them. Sums: elements of C, each of another
/// row.
template <int Units, int Sums>
struct AmdUnits {
  static constexpr bool kFetchesMatrices = false, kPairsInRow = false;
  static constexpr int kAUnits = Units, kBUnits = Units, kRowLanes = 16, kRowsOfLane = Sums;
  static constexpr int row_of(int i) { return i; }
  static constexpr int a_unit_row(int lane, int) { return lane % 16; }
  static constexpr int b_unit_row(int lane, int) { return lane % 16; }
  static constexpr int a_unit(int lane, int j) { return Units == 4 ? j : 2 * j + lane / 16; }
  static constexpr int b_unit(int lane, int j) { return a_unit(lane, j); }
  static constexpr int a_word(int step, int w) { return step * (2 * Units) + w; }
  static constexpr int b_word(int step, int w) { return a_word(step, w); }
};
/// mfma_f32_16x16x16f16 and mfma_f32_16x16x16bf16_1k, gfx90a to gfx950.
struct MfmaPairsTile : AmdTile<16, 16, 4, 64>, AmdUnits<1, 4> {
  using Fragments = PairFragments<4, 4, 4>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 4 + i; }
};
struct MfmaF16Tile : MfmaPairsTile {
  static constexpr bool kF16 = true;
};
struct MfmaBf16Tile : MfmaPairsTile {
  static constexpr bool kF16 = false;
};
/// wmma_f32_16x16x16_f16_w32 and _bf16_w32, gfx11.
struct WmmaPairsGfx11Tile : AmdTile<16, 16, 16, 32>, AmdUnits<4, 8> {
  using Fragments = PairFragments<16, 16, 8>;
  static constexpr int c_row(int lane, int i) { return 2 * i + lane / 16; }
};
struct WmmaF16Gfx11Tile : WmmaPairsGfx11Tile {
  static constexpr bool kF16 = true;
};
struct WmmaBf16Gfx11Tile : WmmaPairsGfx11Tile {
  static constexpr bool kF16 = false;
};
/// wmma_f32_16x16x16_f16_w32_gfx12 and _bf16_w32_gfx12.
struct WmmaPairsGfx12Tile : AmdTile<16, 16, 8, 32>, AmdUnits<2, 8> {
  using Fragments = PairFragments<8, 8, 8>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 8 + i; }
};
struct WmmaF16Gfx12Tile : WmmaPairsGfx12Tile {
  static constexpr bool kF16 = true;
};
struct WmmaBf16Gfx12Tile : WmmaPairsGfx12Tile {
  static constexpr bool kF16 = false;
};

/// NVIDIA's m16n8: registers of 32 bits, Run elements each, by pairs of rows and then halves of k.
template <int K, int Run>
struct NvidiaTile {
  static constexpr int kM = 16, kN = 8, kK = K, kLanes = 32;
  static constexpr int a_row(int lane, int i) { return lane / 4 + i / Run % 2 * 8; }
  static constexpr int a_k(int lane, int i) { return lane % 4 * Run + i % Run + i / (2 * Run) * (K / 2); }
  static constexpr int b_row(int lane, int) { return lane / 4; }
  static constexpr int b_k(int lane, int i) { return lane % 4 * Run + i % Run + i / Run * (K / 2); }
  static constexpr int c_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
  static constexpr int c_column(int lane, int i) { return lane % 4 * 2 + i % 2; }
};
/// mma.m16n8k16 f16 and bf16, sm_80 and newer.
struct MmaPairsTile : NvidiaTile<16, 2> {
  using Fragments = PairFragments<8, 4, 4>;
  static constexpr bool kFetchesMatrices = true, kPairsInRow = true;
  static constexpr int kAUnits = 2, kBUnits = 1, kRowLanes = 4, kRowsOfLane = 2;
  static constexpr int row_of(int i) { return i / 2; }
  static constexpr int a_unit_row(int lane, int) { return lane % 16; }
  static constexpr int b_unit_row(int lane, int) { return lane % 8; }
  static constexpr int a_unit(int lane, int j) { return 2 * j + lane / 16; }
  static constexpr int b_unit(int lane, int) { return lane / 8; }
  static constexpr int a_word(int step, int w) { return 4 * step + w; }
  static constexpr int b_word(int step, int w) { return 2 * step + w; }
};
struct MmaF16Tile : MmaPairsTile {
  static constexpr bool kF16 = true;
};
struct MmaBf16Tile : MmaPairsTile {
  static constexpr bool kF16 = false;
};
/// mma.m16n8k32 s8, sm_80 and newer.
struct MmaInt8Tile : NvidiaTile<32, 4> {
  using Fragments = Int8Fragments<16, 8, 4>;
};

}  // namespace forge::gpu

#include "kernels/gpu/prelude/prelude_tiles.h"

namespace forge::gpu {

inline constexpr int kUnitsOfRow = 4;  ///< of 32 columns of F16 or BF16, 16 bytes each
/// Where unit u of a row of 32 columns lies, rows one behind the other: eight lanes that read or write 16 bytes each,
/// of a row's units or of one unit of neighbouring rows, then use all banks once.
FORGE_DEVICE constexpr int unit_place(int row, int u) {
  return row * kUnitsOfRow + (u ^ (row / 2 & 3));
}

/// What the lane gets of a unit of 16 bytes in shared memory, as the tile says.
template <class Tile, int Count>
FORGE_DEVICE U32x4 fetch_unit(const Shared<U32x4, Count>& from, int index) {
  if constexpr (Tile::kFetchesMatrices)
    return load_matrices(from, index);
  else
    return from.get(index);
}
/// The lane's units of A, or of B, from a tile whose first row, a multiple of eight, lies at `first`.
template <class Tile, int Count>
FORGE_DEVICE void fetch_a(const Shared<U32x4, Count>& from, int first, U32x4 (&a)[Tile::kAUnits]) {
  FORGE_UNROLL
  for (int j = 0; j < Tile::kAUnits; ++j)
    a[j] = fetch_unit<Tile>(from, first + unit_place(Tile::a_unit_row(lane_id(), j), Tile::a_unit(lane_id(), j)));
}
template <class Tile, int Count>
FORGE_DEVICE void fetch_b(const Shared<U32x4, Count>& from, int first, U32x4 (&b)[Tile::kBUnits]) {
  FORGE_UNROLL
  for (int j = 0; j < Tile::kBUnits; ++j)
    b[j] = fetch_unit<Tile>(from, first + unit_place(Tile::b_unit_row(lane_id(), j), Tile::b_unit(lane_id(), j)));
}

inline constexpr int kHalves = 2;  ///< instructions along 32 columns
/// Adds one half of the 32 columns' products.
template <class Tile>
FORGE_DEVICE void multiply_half(int half, const U32x4 (&a)[Tile::kAUnits], const U32x4 (&b)[Tile::kBUnits],
                                float (&sums)[Tile::Fragments::kC]) {
  using Fragments = typename Tile::Fragments;
  Fragments f;
  FORGE_UNROLL
  for (int w = 0; w < Fragments::kA / 2; ++w) f.a[w] = a[Tile::a_word(half, w) / 4].at[Tile::a_word(half, w) % 4];
  FORGE_UNROLL
  for (int w = 0; w < Fragments::kB / 2; ++w) f.b[w] = b[Tile::b_word(half, w) / 4].at[Tile::b_word(half, w) % 4];
  FORGE_UNROLL
  for (int i = 0; i < Fragments::kC; ++i) f.c[i] = sums[i];
  multiply_tile(Tile(), f);
  FORGE_UNROLL
  for (int i = 0; i < Fragments::kC; ++i) sums[i] = f.c[i];
}

}  // namespace forge::gpu
