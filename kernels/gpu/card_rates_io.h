#pragma once
// Arguments of the kernels of card_rates.h, and the numbers that they multiply. Free-standing: host and device sources
// include it.

namespace forge::gpu {

/// in: steps * kReadStepBytes bytes. out: for each thread of the grid the sum of the words that it has read, modulo
/// 2^32. blocks: of the grid.
struct ReadRateArgs {
  const unsigned* in;
  unsigned* out;
  long long steps, blocks;
};

/// out: for each wave of the grid, the sums of rounds * kMatrixUnrolled products in tile number wave % kMatrixTiles, as
/// f32 [kMatrixRows][N].
struct MatrixRateArgs {
  float* out;
  long long rounds;
};

namespace card_rates {

inline constexpr int kReadThreads = 256, kReadLoads = 8, kReadStepBytes = kReadThreads * kReadLoads * 16;

/// A wave has kMatrixA factors A [kMatrixRows][kMatrixDepth] and kMatrixB factors Bt [N][kMatrixDepth]. Tile t of sums
/// is that of factors t / kMatrixB and t % kMatrixB.
inline constexpr int kMatrixWaves = 8, kMatrixA = 2, kMatrixB = 4, kMatrixTiles = kMatrixA * kMatrixB;
inline constexpr int kMatrixRows = 16, kMatrixDepth = 16, kMatrixUnrolled = 4;

/// Factors are integers of at most this magnitude, which F16 represents exactly.
inline constexpr int kFactorMax = 15;
/// Sums of so many rounds are below 2^24, so that f32 represents them exactly.
inline constexpr int kMatrixRoundsMax = (1 << 24) / (kFactorMax * kFactorMax * kMatrixDepth * kMatrixUnrolled);

/// The element in a row of a factor at column k. Factors A have the numbers 0 to kMatrixA - 1, factors Bt those behind
/// them. Elements differ, because a card multiplies zeros and repeated numbers with less power, and so faster.
constexpr int element(int factor, int row, int k) {
  const unsigned place =
      (static_cast<unsigned>(factor) * 16 + static_cast<unsigned>(row)) * 16 + static_cast<unsigned>(k);
  const unsigned mixed = (place + 1) * 2654435769U;  // Knuth's multiplicative hash
  return static_cast<int>((mixed >> 16) % (2 * kFactorMax + 1)) - kFactorMax;
}

}  // namespace card_rates
}  // namespace forge::gpu
