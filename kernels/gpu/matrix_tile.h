#pragma once
// Matrix tiles: C[M][N] += A[M][K] * Bt[N][K]^T by one wave, an instruction each. Which lane holds what is a table
// here; kernels load their fragments by it, and on the host multiply_tile computes by it. Tables: AMD's, as they were
// checked against products on an instruction-level model (l the lane, r = l mod M, g = l div M); NVIDIA's, PTX ISA
// "Matrix Fragments for mma.m16n8k16" and "mma.m16n8k32".
// A tile says: kM, kN, kK; kLanes, the wave's; Fragments: what a lane holds; a_row, a_k, b_row, b_k, c_row, c_column of
// element i of lane l. A and B are f16 bits with f32 sums, or int8 with exact i32 sums.

#include "kernels/gpu/prelude.h"

namespace forge::gpu {

template <class Factor, class Sum, int A, int B, int C>
struct TileFragments {
  static constexpr int kA = A, kB = B, kC = C;
  alignas(A * sizeof(Factor) < 16 ? A * sizeof(Factor) : 16) Factor a[A];
  alignas(B * sizeof(Factor) < 16 ? B * sizeof(Factor) : 16) Factor b[B];
  Sum c[C];
};
template <int A, int B, int C>
using HalfFragments = TileFragments<u16, float, A, B, C>;
template <int A, int B, int C>
using Int8Fragments = TileFragments<i8, i32, A, B, C>;

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

/// mfma_f32_16x16x16f16, gfx908 to gfx950.
struct MfmaF16Tile : AmdTile<16, 16, 4, 64> {
  using Fragments = HalfFragments<4, 4, 4>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 4 + i; }
};
/// mfma_f32_32x32x8f16, gfx908 to gfx950.
struct MfmaF16WideTile : AmdTile<32, 8, 4, 64> {
  using Fragments = HalfFragments<4, 4, 16>;
  static constexpr int c_row(int lane, int i) { return i % 4 + lane / 32 * 4 + i / 4 * 8; }
};
/// mfma_i32_16x16x16i8, gfx908 and gfx90a.
struct MfmaInt8Gfx908Tile : AmdTile<16, 16, 4, 64> {
  using Fragments = Int8Fragments<4, 4, 4>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 4 + i; }
};
/// mfma_i32_16x16x32_i8, gfx942 and gfx950.
struct MfmaInt8Gfx942Tile : AmdTile<16, 32, 8, 64> {
  using Fragments = Int8Fragments<8, 8, 4>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 4 + i; }
};
/// wmma_f32_16x16x16_f16_w32, gfx11.
struct WmmaF16Gfx11Tile : AmdTile<16, 16, 16, 32> {
  using Fragments = HalfFragments<16, 16, 8>;
  static constexpr int c_row(int lane, int i) { return 2 * i + lane / 16; }
};
/// wmma_i32_16x16x16_iu8_w32, gfx11.
struct WmmaInt8Gfx11Tile : AmdTile<16, 16, 16, 32> {
  using Fragments = Int8Fragments<16, 16, 8>;
  static constexpr int c_row(int lane, int i) { return 2 * i + lane / 16; }
};
/// wmma_f32_16x16x16_f16_w32_gfx12.
struct WmmaF16Gfx12Tile : AmdTile<16, 16, 8, 32> {
  using Fragments = HalfFragments<8, 8, 8>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 8 + i; }
};
/// wmma_i32_16x16x16_iu8_w32_gfx12.
struct WmmaInt8Gfx12Tile : AmdTile<16, 16, 8, 32> {
  using Fragments = Int8Fragments<8, 8, 8>;
  static constexpr int c_row(int lane, int i) { return lane / 16 * 8 + i; }
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
/// mma.m16n8k16 f16, sm_80 and newer.
struct MmaF16Tile : NvidiaTile<16, 2> {
  using Fragments = HalfFragments<8, 4, 4>;
};
/// mma.m16n8k32 s8, sm_80 and newer.
struct MmaInt8Tile : NvidiaTile<32, 4> {
  using Fragments = Int8Fragments<16, 8, 4>;
};

}  // namespace forge::gpu

#include "kernels/gpu/prelude_tiles.h"
