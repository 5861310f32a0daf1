#pragma once
// Matrix tiles. One wave computes C[M][N] += A[M][K] * Bt[N][K]^T with one matrix instruction (MFMA, WMMA or mma.sync).
// A tile type is the table of that instruction's register layout: a_row, a_k, b_row, b_k, c_row and c_column give the
// position of element i of lane l in A, Bt and C. Kernels load their fragments by this table; the host computes by it.
// A and B are f16 or bf16 with f32 sums, or int8 with exact i32 sums.
//
// AMD, with r = l % M and g = l / M. A and Bt have the same layout: lane l holds `Run` consecutive k of row r.
//
//   MFMA 16x16x16 (Run = 4, 64 lanes)               C: lane l holds column r; its element i is in row
//            k = 0..3   4..7    8..11   12..15        MFMA 16x16   4 * g + i
//   row 0    lane 0     16      32      48            MFMA 32x32   i % 4 + 4 * g + 8 * (i / 4)
//   row 1    lane 1     17      33      49            WMMA gfx11   2 * i + g
//   ...                                               WMMA gfx12   8 * g + i
//   row 15   lane 15    31      47      63
//
//   WMMA gfx12: Run = 8, 32 lanes. WMMA gfx11: Run = K = 16, so lanes l and l + 16 hold the same.
//
// NVIDIA m16n8k16, with q = l / 4 and p = l % 4. A register holds two elements that are neighbours in k.
//
//   A          k = 2p, 2p+1   8+2p, 8+2p+1          Bt         k = 2p, 2p+1   8+2p, 8+2p+1
//   row q          a0             a2                row q          b0             b1
//   row q + 8      a1             a3                C          columns 2p, 2p+1: row q is c0, c1; row q + 8 is c2, c3
//
// Sources: AMD's tables were checked against products on an instruction-level model; NVIDIA's are in the PTX ISA,
// "Matrix Fragments for mma.m16n8k16" and "mma.m16n8k32".
//
// Through shared memory (f16 and bf16 tiles). Kernels keep 32 columns of k per row: four units of 16 bytes, which two
// instructions ("halves", or steps) consume. kAUnits, a_unit_row and a_unit say which units lane l fetches, a_word(s,
// w) which of the fetched words is word w of its fragment in step s; b_* are the same for B. An AMD lane reads its own
// units; it may take the 32 columns in any order, as long as A and B use the same one. NVIDIA lanes use ldmatrix.x4
// (kFetchesMatrices): lane 8j + i names a row of matrix j, and lane l receives word l % 4 of the unit that lane
// 8j + l / 4 named.
//
// From memory to fragments of A (matmul_strips.h): a lane holds columns of kRowsOfA rows of A, row_of_a(lane, h), and
// kGroups lanes share a row, of which it is number group(lane). Word w of row h is word w * kRowsOfA + h of its
// fragment.
//
// Rows of sums, for reductions along a row of C: kRowLanes neighbouring lanes share a row; a lane has elements of
// kRowsOfLane rows, and its element i is in its row number row_of(i). If kPairsInRow, elements 2i and 2i + 1 are
// neighbours in one row.
//
// Sums as a factor of a next product, whose other factor has 32 columns of k in shared memory, without moving them more
// than they must. AMD: two tiles one above the other become Bt (stack_sums) in an order of their own: row_of_k(k) is
// the row that becomes column k, and k_of_sum(lane, n, i) the column that element i of tile n becomes. Where sums are
// made of rows in that order, columns come in theirs. NVIDIA: two tiles side by side are a fragment of A (join_sums).

#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

/// The elements of A, B and C that one lane holds, as arrays of A, B and C elements, aligned as the registers are.
template <class Factor, class Sum, int A, int B, int C>
struct TileFragments {
  static constexpr int kA = A, kB = B, kC = C;
  alignas(A * sizeof(Factor) < 16 ? A * sizeof(Factor) : 16) Factor a[A];
  alignas(B * sizeof(Factor) < 16 ? B * sizeof(Factor) : 16) Factor b[B];
  Sum c[C];
};
template <int A, int B, int C>
using Int8Fragments = TileFragments<i8, i32, A, B, C>;

/// The same for f16 or bf16 tiles whose factors are packed two per word.
template <int A, int B, int C>
struct PairFragments {
  static constexpr int kA = A, kB = B, kC = C;
  u32 a[A / 2], b[B / 2];
  float c[C];
};

/// AMD's square tiles. Run: consecutive elements of k that a lane holds; Run == K means that both halves of the wave
/// hold the same.
template <int M, int K, int Run, int Lanes>
struct AmdTile {
  static constexpr int kM = M, kN = M, kK = K, kLanes = Lanes;
  static constexpr int a_row(int lane, int) { return lane % M; }
  static constexpr int a_k(int lane, int i) { return Run == K ? i : lane / M * Run + i; }
  static constexpr int b_row(int lane, int) { return lane % M; }
  static constexpr int b_k(int lane, int i) { return a_k(lane, i); }
  static constexpr int c_column(int lane, int) { return lane % M; }
  static constexpr int kGroups = K / Run, kRowsOfA = 1;
  static constexpr int group(int lane) { return Run == K ? 0 : lane / M; }
  static constexpr int row_of_a(int lane, int) { return lane % M; }
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

/// How AMD lanes fetch the four units of a row, for A and B alike. Units: how many of the four a lane fetches (1 with
/// MFMA, 2 on gfx12, all 4 on gfx11). Sums: elements of C in a lane, each in a different row.
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
  static constexpr int row_of_k(int k) {
    return Units == 1 ? k % 8 / 4 * 16 + k / 8 * 4 + k % 4 : Units == 4 ? k / 16 * 16 + k % 8 * 2 + k % 16 / 8 : k;
  }
  static constexpr int k_of_sum(int lane, int n, int i) {
    return Units == 1 ? lane / 16 * 8 + n * 4 + i : n * 16 + lane / 16 * 8 + i;
  }
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

/// NVIDIA's m16n8 tiles. Run: elements in a 32-bit register. Registers of A go over the two rows first, then over the
/// two halves of k.
template <int K, int Run>
struct NvidiaTile {
  static constexpr int kM = 16, kN = 8, kK = K, kLanes = 32;
  static constexpr int a_row(int lane, int i) { return lane / 4 + i / Run % 2 * 8; }
  static constexpr int a_k(int lane, int i) { return lane % 4 * Run + i % Run + i / (2 * Run) * (K / 2); }
  static constexpr int b_row(int lane, int) { return lane / 4; }
  static constexpr int b_k(int lane, int i) { return lane % 4 * Run + i % Run + i / Run * (K / 2); }
  static constexpr int c_row(int lane, int i) { return lane / 4 + i / 2 * 8; }
  static constexpr int c_column(int lane, int i) { return lane % 4 * 2 + i % 2; }
  static constexpr int kGroups = 4, kRowsOfA = 2;
  static constexpr int group(int lane) { return lane % 4; }
  static constexpr int row_of_a(int lane, int h) { return lane / 4 + 8 * h; }
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

inline constexpr int kUnitsOfRow = 4;  ///< units of 16 bytes in a row of 32 columns of f16 or bf16
/// The index of unit u of a row in shared memory. Units are swizzled against bank conflicts: a row is 64 bytes, so two
/// rows span all 32 banks.
///
///   row      unit at place 0, 1, 2, 3
///   0, 1     0 1 2 3
///   2, 3     1 0 3 2
///   4, 5     2 3 0 1
///   6, 7     3 2 1 0
///
/// Eight lanes that access 16 bytes each, either all units of two neighbouring rows or the same unit of eight
/// neighbouring rows (a column of the table), touch each bank exactly once.
FORGE_DEVICE constexpr int unit_place(int row, int u) {
  return row * kUnitsOfRow + (u ^ (row / 2 & 3));
}

/// Fetches the unit at `index` for this lane, or by ldmatrix together with the other lanes.
template <class Tile, int Count>
FORGE_DEVICE U32x4 fetch_unit(const Shared<U32x4, Count>& from, int index) {
  if constexpr (Tile::kFetchesMatrices)
    return load_matrices(from, index);
  else
    return from.get(index);
}
/// Fetches the lane's units of A (fetch_b: of B). `first` is the index of unit 0 of the tile's first row, whose row
/// number must be a multiple of eight (the swizzle's period).
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

/// Makes the lane's units of A without shared memory: word(row, unit, w) is word w (two columns) of a unit of a row. A
/// lane with ldmatrix has words of other units than AMD's lanes, as the table above says.
template <class Tile, class Word>
FORGE_DEVICE void make_a(Word&& word, U32x4 (&a)[Tile::kAUnits]) {
  FORGE_UNROLL
  for (int j = 0; j < Tile::kAUnits; ++j) {
    FORGE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const int lane = Tile::kFetchesMatrices ? 8 * w + lane_id() / 4 : lane_id();
      a[j].at[w] = word(Tile::a_unit_row(lane, j), Tile::a_unit(lane, j), Tile::kFetchesMatrices ? lane_id() % 4 : w);
    }
  }
}
/// Which of the 32 columns of k is element i of the lane's fragment of B in a half.
template <class Tile>
FORGE_DEVICE int column_of_b(int lane, int half, int i) {
  const int word = Tile::b_word(half, i / 2);
  if constexpr (Tile::kFetchesMatrices)
    return word * 8 + lane % 4 * 2 + i % 2;  // a unit is a matrix
  else
    return Tile::b_unit(lane, word / 4) * 8 + word % 4 * 2 + i % 2;
}

/// The lane's fragment of B whose Bt is the transpose of a tile of sums in f16: the sums of columns of C over k of the
/// next product. c: 16 rows (k). MFMA and gfx12 have the same layout for both.
///
///   gfx11     the halves of the wave have even and odd rows, and swap them: word w of each makes words 2w and 2w + 1
///   NVIDIA    two 8x8 matrices are transposed: lane 4q + p gets elements 2p and 2p + 1 of column q, which lanes
///             8p + q / 2 and 8p + 4 + q / 2 have in their half q % 2
template <class Tile>
FORGE_DEVICE void transpose_sums(const float (&c)[Tile::Fragments::kC], u32 (&b)[Tile::Fragments::kB / 2]) {
  constexpr int kWords = Tile::Fragments::kC / 2;
  u32 words[kWords];
  FORGE_UNROLL
  for (int w = 0; w < kWords; ++w) words[w] = f16_pair(c[2 * w], c[2 * w + 1]);
  FORGE_UNROLL
  for (int w = 0; w < kWords; ++w) {
    if constexpr (Tile::kPairsInRow) {
      const int column = lane_id() / 4, source = lane_id() % 4 * 8 + column / 2;
      const u32 first = shuffle(words[w], source), second = shuffle(words[w], source + 4);
      b[w] = column % 2 == 0 ? low_halves(first, second) : high_halves(first, second);
    } else if constexpr (Tile::kGroups == 1) {
      const u32 other = shuffle_xor<16>(words[w]);
      b[2 * w] = permute(other, words[w], lane_id() < 16 ? 0x05040100u : 0x01000504u);
      b[2 * w + 1] = permute(other, words[w], lane_id() < 16 ? 0x07060302u : 0x03020706u);
    } else {
      b[w] = words[w];
    }
  }
}

/// The lane's fragment of B of which a tile of sums, as packed f16, is Bt's columns in the order of row_of_k. AMD only.
template <class Tile>
FORGE_DEVICE void stack_sums(const u32 (&words)[Tile::Fragments::kC / 2], u32 (&b)[Tile::Fragments::kB / 2]) {
  constexpr int kWords = Tile::Fragments::kC / 2;
  FORGE_UNROLL
  for (int w = 0; w < kWords; ++w) {
    if constexpr (Tile::kGroups == 1) {  // each half of the wave has half of the rows, and both need all
      b[w] = from_half<0>(words[w]);
      b[kWords + w] = from_half<1>(words[w]);
    } else {
      b[w] = words[w];
    }
  }
}
/// The lane's fragment of A made of two tiles of sums side by side, as packed f16: their columns are those of k. NVIDIA
/// only.
template <class Tile>
FORGE_DEVICE void join_sums(const u32 (&left)[Tile::Fragments::kC / 2], const u32 (&right)[Tile::Fragments::kC / 2],
                            u32 (&a)[Tile::Fragments::kA / 2]) {
  static_assert(Tile::kPairsInRow && Tile::Fragments::kA == 8 && Tile::kN * 2 == Tile::kK);
  FORGE_UNROLL
  for (int w = 0; w < 2; ++w) {
    a[w] = left[w];
    a[2 + w] = right[w];
  }
}

inline constexpr int kHalves = 2;  ///< instructions that 32 columns of k take
/// One instruction: sums += a * b, of the words of the lane's fragments.
template <class Tile>
FORGE_DEVICE void multiply_fragments(const u32 (&a)[Tile::Fragments::kA / 2], const u32 (&b)[Tile::Fragments::kB / 2],
                                     float (&sums)[Tile::Fragments::kC]) {
  using Fragments = typename Tile::Fragments;
  Fragments f;
  FORGE_UNROLL
  for (int w = 0; w < Fragments::kA / 2; ++w) f.a[w] = a[w];
  FORGE_UNROLL
  for (int w = 0; w < Fragments::kB / 2; ++w) f.b[w] = b[w];
  FORGE_UNROLL
  for (int i = 0; i < Fragments::kC; ++i) f.c[i] = sums[i];
  multiply_tile(Tile(), f);
  FORGE_UNROLL
  for (int i = 0; i < Fragments::kC; ++i) sums[i] = f.c[i];
}
/// The words of the lane's fragment of A (words_of_b: of B) in one half of the 32 columns, of the units as fetched.
template <class Tile>
FORGE_DEVICE void words_of_a(int half, const U32x4 (&a)[Tile::kAUnits], u32 (&words)[Tile::Fragments::kA / 2]) {
  FORGE_UNROLL
  for (int w = 0; w < Tile::Fragments::kA / 2; ++w)
    words[w] = a[Tile::a_word(half, w) / 4].at[Tile::a_word(half, w) % 4];
}
template <class Tile>
FORGE_DEVICE void words_of_b(int half, const U32x4 (&b)[Tile::kBUnits], u32 (&words)[Tile::Fragments::kB / 2]) {
  FORGE_UNROLL
  for (int w = 0; w < Tile::Fragments::kB / 2; ++w)
    words[w] = b[Tile::b_word(half, w) / 4].at[Tile::b_word(half, w) % 4];
}
/// Multiplies one half of the 32 columns: sums += a * b. a: as fetch_a has it; b: the words of the lane's fragment.
template <class Tile>
FORGE_DEVICE void multiply_words(int half, const U32x4 (&a)[Tile::kAUnits], const u32 (&b)[Tile::Fragments::kB / 2],
                                 float (&sums)[Tile::Fragments::kC]) {
  u32 words[Tile::Fragments::kA / 2];
  words_of_a<Tile>(half, a, words);
  multiply_fragments<Tile>(words, b, sums);
}
/// The same with b as fetch_b has it.
template <class Tile>
FORGE_DEVICE void multiply_half(int half, const U32x4 (&a)[Tile::kAUnits], const U32x4 (&b)[Tile::kBUnits],
                                float (&sums)[Tile::Fragments::kC]) {
  u32 words[Tile::Fragments::kB / 2];
  words_of_b<Tile>(half, b, words);
  multiply_words<Tile>(half, a, words, sums);
}

}  // namespace forge::gpu
