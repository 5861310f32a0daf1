#pragma once
// Matrix tiles: C[M][N] += A[M][K] * Bt[N][K]^T by one wave, an instruction each. Which lane holds what is a table
// here; kernels load their fragments by it, and on the host multiply_tile computes by it. Tables: AMD's, as they were
// checked against products on an instruction-level model (l the lane, r = l mod 16, g = l div 16); NVIDIA's, PTX ISA
// "Matrix Fragments for mma.m16n8k16".
// A tile says: kM, kN, kK; kWave; kA, kB, kC: elements a lane holds; a_row, a_k, b_row, b_k, c_row, c_column of element
// i of lane l. Elements of A and B: f16 bits.

#include "kernels/gpu/prelude.h"

namespace forge::gpu {

template <int A, int B, int C>
struct TileFragments {
  static constexpr int kA = A, kB = B, kC = C;
  u16 a[A], b[B];
  float c[C];
};

/// What AMD's 16x16 tiles share: A and B by the same rule, C with its column in r.
struct AmdTile16 {
  static constexpr int kM = 16, kN = 16, kK = 16;
  static constexpr int c_column(int lane, int) { return lane % 16; }
  static constexpr int a_row(int lane, int) { return lane % 16; }
  static constexpr int b_row(int lane, int) { return lane % 16; }
};
/// mfma_f32_16x16x16f16, gfx908 to gfx950.
struct MfmaF16Tile : AmdTile16 {
  static constexpr int kLanes = 64;
  using Fragments = TileFragments<4, 4, 4>;
  static constexpr int a_k(int lane, int i) { return lane / 16 * 4 + i; }
  static constexpr int b_k(int lane, int i) { return a_k(lane, i); }
  static constexpr int c_row(int lane, int i) { return lane / 16 * 4 + i; }
};
/// wmma_f32_16x16x16_f16_w32, gfx11: both halves of the wave hold the same A and B.
struct WmmaF16Gfx11Tile : AmdTile16 {
  static constexpr int kLanes = 32;
  using Fragments = TileFragments<16, 16, 8>;
  static constexpr int a_k(int, int i) { return i; }
  static constexpr int b_k(int, int i) { return i; }
  static constexpr int c_row(int lane, int i) { return 2 * i + lane / 16; }
};
/// wmma_f32_16x16x16_f16_w32_gfx12.
struct WmmaF16Gfx12Tile : AmdTile16 {
  static constexpr int kLanes = 32;
  using Fragments = TileFragments<8, 8, 8>;
  static constexpr int a_k(int lane, int i) { return lane / 16 * 8 + i; }
  static constexpr int b_k(int lane, int i) { return a_k(lane, i); }
  static constexpr int c_row(int lane, int i) { return lane / 16 * 8 + i; }
};
/// mma.sync.m16n8k16 f16, sm_80 and newer.
struct MmaF16Sm80Tile {
  static constexpr int kM = 16, kN = 8, kK = 16, kLanes = 32;
  using Fragments = TileFragments<8, 4, 4>;
  static constexpr int a_row(int lane, int i) { return lane / 4 + (i / 2 % 2) * 8; }
  static constexpr int a_k(int lane, int i) { return lane % 4 * 2 + i % 2 + i / 4 * 8; }
  static constexpr int b_row(int lane, int) { return lane / 4; }
  static constexpr int b_k(int lane, int i) { return lane % 4 * 2 + i % 2 + i / 2 * 8; }
  static constexpr int c_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
  static constexpr int c_column(int lane, int i) { return lane % 4 * 2 + i % 2; }
};

}  // namespace forge::gpu

#include "kernels/gpu/prelude_tiles.h"
