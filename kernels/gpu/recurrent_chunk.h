#pragma once
// What the chunks of recurrent_tiles.h share: 32 tokens, how their keys and queries lie in shared memory, and what
// holds unless a kind of chunk says something else.

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

  /// A state in registers whose elements or a chunk's values are above this is scaled down.
  static constexpr float kMost = 4096;
  /// Values and what is read by keys are written by the same keys.
  static constexpr bool kTwoKeys = false;

  /// Tokens t0 .. t0 + count - 1 of the step. gates: the index of the chunk's gates.
  struct Chunk {
    int t0, count, gates;
  };

  /// The thread's and the lane's number. What is computed from them is computed again in each chunk, because registers
  /// do not hold all of it.
  FORGE_DEVICE static int own_thread() { return opaque(thread_id()); }
  FORGE_DEVICE static int own_lane() { return opaque(lane_id()); }

  /// By what products with the state, and values that are added to it, are multiplied: nothing if keys and queries have
  /// all decays in them.
  template <class Lds>
  FORGE_DEVICE static float from_start(const Lds&, const Chunk&, int) {
    return 1;
  }
  template <class Lds>
  FORGE_DEVICE static float to_end(const Lds&, const Chunk&, int) {
    return 1;
  }

  FORGE_DEVICE static bool is_row(int row) { return C::kRows == kDim || row < C::kRows; }
};

}  // namespace forge::gpu
