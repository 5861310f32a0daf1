#pragma once
// What the two kinds of decay of recurrent_tiles.h share: chunks of 32 tokens, and how their keys and queries lie in
// shared memory.

#include "kernels/gpu/recurrent.h"
#include "kernels/gpu/strip_products.h"

namespace forge::gpu {

template <class C>
struct StateChunk {
  using S = Strip<typename C::Tile>;
  static constexpr int kChunk = 32, kBlock = 16, kThreads = C::kWaves * kWave;
  static constexpr int kSlab = 32, kSlabs = ceil_div(C::kRows, kSlab), kDim = kSlabs * kSlab;
  static_assert(C::kRows % 4 == 0 && C::kRows <= 128, "kRows must be a multiple of 4 up to 128");

  // Offsets in units of 16 bytes.
  static constexpr int kRegion = kSlabs * kChunk * kUnitsOfRow, kSquare = kChunk * kUnitsOfRow;
  static constexpr int kKeys = 0, kQueries = kRegion, kTurned = 2 * kRegion;

  /// Tokens t0 .. t0 + count - 1 of the step. gates: the index of the chunk's gates.
  struct Chunk {
    int t0, count, gates;
  };

  /// The thread's and the lane's number. What is computed from them is computed again in each chunk, because registers
  /// do not hold all of it.
  FORGE_DEVICE static int own_thread() { return opaque(thread_id()); }
  FORGE_DEVICE static int own_lane() { return opaque(lane_id()); }

  FORGE_DEVICE static bool is_row(int row) { return C::kRows == kDim || row < C::kRows; }
};

}  // namespace forge::gpu
