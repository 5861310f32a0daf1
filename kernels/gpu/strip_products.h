#pragma once
// Products of matrix tiles whose results are factors of the next product without passing through shared memory.
//
// A strip is a matrix of a wave with 16 columns, which lie in registers, and any number of rows. Its product with a
// matrix in shared memory (rows of 32 columns of k, matrix_tile.h) sums over the strip's rows and is a strip again:
//
//   strip [k][16], shared [n][k]  ->  strip [n][16]
//
// The sums of a lane are then elements that the same lane holds as a factor, because the strip is
//
//   Bt on AMD      C [n][16]: lane l has column l % 16, as Bt [16][k] wants
//   A on NVIDIA    C [16][n]: lane l has columns l / 4 and l / 4 + 8, pairs of rows, as A [16][k] wants
//
// On gfx11 a lane needs all k of its column, and has every other one; lane l ^ 16 has the rest.
//
// MFMA lanes fetch 16 bytes, which two instructions consume: rows 8g .. 8g+3 of lane group g in the first, 8g+4 .. 8g+7
// in the second, while its sums are rows 4g .. 4g+3 of a tile. So shared memory has its columns of k in another order:
// place() says where.

#include "kernels/gpu/matrix_tile.h"

namespace forge::gpu {

template <class T>
struct Strip {
  static constexpr bool kLeft = T::kPairsInRow;  ///< NVIDIA: the strip is A
  static constexpr bool kMfma = !T::kFetchesMatrices && T::kAUnits == 1;
  static constexpr int kColumns = 16, kTile = kLeft ? T::kN : T::kM;  ///< rows of the strip in a tile
  static constexpr int kSums = T::Fragments::kC;
  static constexpr int kWords = (kLeft ? T::Fragments::kA : T::Fragments::kB) / 2;
  static constexpr int kUnits = kLeft ? T::kBUnits : T::kAUnits;
  static constexpr int kStep = T::kK;  ///< rows that one instruction consumes
  static_assert(T::kM == 16 && kStep == 16 && T::kF16, "the tile must be f16, 16 rows high and 16 deep");

  struct Factor {
    u32 words[kWords];
  };

  /// The column of a lane's sum i, and its row in the tile.
  FORGE_DEVICE static int column(int lane, int i) { return kLeft ? T::c_row(lane, i) : T::c_column(lane, i); }
  FORGE_DEVICE static int row(int lane, int i) { return kLeft ? T::c_column(lane, i) : T::c_row(lane, i); }

  /// Calls visit(tile, i, row of the strip, sum) for the lane's sums.
  template <int Tiles, class Visit>
  FORGE_DEVICE static void each(int lane, float (&sums)[Tiles][kSums], Visit&& visit) {
    FORGE_UNROLL
    for (int n = 0; n < Tiles; ++n) {
      FORGE_UNROLL
      for (int i = 0; i < kSums; ++i) visit(n, i, n * kTile + row(lane, i), sums[n][i]);
    }
  }

  /// Where shared memory has column `k` of 32, and the first column of four that lie at unit u: its first or second
  /// half.
  FORGE_DEVICE static constexpr int place(int k) { return kMfma ? k % 16 / 4 * 8 + k / 16 * 4 + k % 4 : k; }
  FORGE_DEVICE static constexpr int four_of(int u, int half) { return kMfma ? 4 * u + 16 * half : 8 * u + 4 * half; }
  /// The index of a 16-bit element of a row of shared memory; `first`: unit 0 of row 0.
  FORGE_DEVICE static constexpr int half_at(int first, int row, int k) {
    return (first + unit_place(row, place(k) / 8)) * 8 + place(k) % 8;
  }

  /// Rows step * 16 .. + 15 of a strip as a factor. All lanes of the wave.
  template <int Tiles>
  FORGE_DEVICE static Factor factor(const float (&sums)[Tiles][kSums], int step) {
    Factor out;
    if constexpr (kLeft) {
      FORGE_UNROLL
      for (int w = 0; w < kWords; ++w) {
        const auto& tile = sums[2 * step + w / 2];
        out.words[w] = f16_pair(tile[w % 2 * 2], tile[w % 2 * 2 + 1]);
      }
    } else if constexpr (kWords == kSums / 2) {
      FORGE_UNROLL
      for (int w = 0; w < kWords; ++w) out.words[w] = f16_pair(sums[step][2 * w], sums[step][2 * w + 1]);
    } else {  // gfx11: the even rows are in lanes 0 .. 15, the odd ones in lanes 16 .. 31
      const bool odd = lane_id() >= 16;
      FORGE_UNROLL
      for (int w = 0; w < kWords / 2; ++w) {
        const u32 own = f16_pair(sums[step][2 * w], sums[step][2 * w + 1]), other = shuffle_xor<16>(own);
        const u32 evens = odd ? other : own, odds = odd ? own : other;
        out.words[2 * w] = low_halves(evens, odds);
        out.words[2 * w + 1] = high_halves(evens, odds);
      }
    }
    return out;
  }

  /// Fetches the lane's units of a tile's rows; `first` as in fetch_a.
  template <int Count>
  FORGE_DEVICE static void fetch(const Shared<U32x4, Count>& from, int first, U32x4 (&units)[kUnits]) {
    if constexpr (kLeft)
      fetch_b<T>(from, first, units);
    else
      fetch_a<T>(from, first, units);
  }
  /// sums += the factor times columns half * 16 .. + 15 of the fetched rows.
  FORGE_DEVICE static void multiply(const Factor& factor, const U32x4 (&units)[kUnits], int half,
                                    float (&sums)[kSums]) {
    typename T::Fragments f;
    u32(&own)[kWords] = [&]() -> auto& {
      if constexpr (kLeft)
        return f.a;
      else
        return f.b;
    }();
    auto& shared = [&]() -> auto& {
      if constexpr (kLeft)
        return f.b;
      else
        return f.a;
    }();
    constexpr int kShared = (kLeft ? T::Fragments::kB : T::Fragments::kA) / 2;
    FORGE_UNROLL
    for (int w = 0; w < kWords; ++w) own[w] = factor.words[w];
    FORGE_UNROLL
    for (int w = 0; w < kShared; ++w) {
      const int word = kLeft ? T::b_word(half, w) : T::a_word(half, w);
      shared[w] = units[word / 4].at[word % 4];
    }
    FORGE_UNROLL
    for (int i = 0; i < kSums; ++i) f.c[i] = sums[i];
    multiply_tile(T(), f);
    FORGE_UNROLL
    for (int i = 0; i < kSums; ++i) sums[i] = f.c[i];
  }
};

}  // namespace forge::gpu
