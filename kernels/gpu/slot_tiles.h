#pragma once
// Grouping of the slots of a mixture of experts for the grouped GEMM (matmul_tiles.h). A slot is a token and one of its
// experts. Each tile of the grid multiplies up to TileSlots slots that have the same expert.
//
//   expert of slot   0  2  0  1  0  2          TileSlots = 2
//   tiles            expert 0: slots 0, 2 | expert 0: slot 4 | expert 1: slot 3 | expert 2: slots 1, 5
//
// There is no sorting kernel before: each block counts the slots of every expert, finds the tile with its own number
// and lists the tile's slots in ascending order. That takes a few microseconds, while the product takes tens of them.

#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

/// Inclusive prefix sum over the wave: the sum of `value` of all lanes up to this one. Each step adds the sum that ends
/// `step` lanes below (Hillis and Steele).
FORGE_DEVICE i32 sum_to_lane(i32 value) {
  FORGE_UNROLL
  for (int step = 1; step < kWave; step *= 2) {
    const i32 other = shuffle(value, lane_id() >= step ? lane_id() - step : lane_id());
    if (lane_id() >= step) value += other;
  }
  return value;
}

/// Experts: number of experts. TileSlots: slots in a tile. Threads: of a block.
template <int Experts, int TileSlots, int Threads>
struct SlotTiles {
  static constexpr int kWaves = Threads / kWave, kTileBits = 16;
  /// The largest number of tiles that `slots` slots can make: all full ones, and a partly filled one for each expert.
  FORGE_DEVICE static constexpr int most(int slots) { return slots / TileSlots + (slots < Experts ? slots : Experts); }
  struct Lds {
    Shared<i32, Experts> counts;
    Shared<i32, kWaves> matches;   ///< slots with the tile's expert, per wave
    Shared<i32, TileSlots> slots;  ///< the tile's slots, ascending
  };
  struct Tile {
    int expert, count;  ///< count: slots in the tile. {-1, 0}: there is no tile with this number
  };

  /// Finds tile number `tile` and writes its slots to lds.slots. experts: [slots] i32, the expert of each slot. All
  /// lanes of the block call this together; it ends with a barrier. Each thread handles a contiguous share of the
  /// slots, so that a slot's rank among those of its expert is a prefix sum over lanes, then over waves, minus the
  /// `before` slots that are in the expert's earlier tiles.
  FORGE_DEVICE static Tile find(const i32* experts, int slots, int tile, Lds& lds) {
    for (int e = thread_id(); e < Experts; e += Threads) lds.counts.set(e, 0);
    barrier();
    const int share = ceil_div(slots, Threads), begin = thread_id() * share;
    const int end = begin + share < slots ? begin + share : slots;
    for (int i = begin; i < end; ++i) lds.counts.add(load(experts + i), 1);
    barrier();
    const int found = numbered(tile, lds);
    if (found < 0) return {-1, 0};
    const int expert = found >> kTileBits, before = (found & ((1 << kTileBits) - 1)) * TileSlots;
    i32 matches = 0;
    for (int i = begin; i < end; ++i) matches += load(experts + i) == expert ? 1 : 0;
    const i32 up_to = sum_to_lane(matches);
    if (lane_id() == kWave - 1) lds.matches.set(wave_id(), up_to);
    barrier();
    int rank = up_to - matches - before;
    for (int w = 0; w < wave_id(); ++w) rank += lds.matches.get(w);
    for (int i = begin; i < end; ++i) {
      if (load(experts + i) != expert) continue;
      if (rank >= 0 && rank < TileSlots) lds.slots.set(rank, i);
      ++rank;
    }
    barrier();
    const int left = lds.counts.get(expert) - before;
    return {expert, left < TileSlots ? left : TileSlots};
  }

 private:
  /// Returns expert << kTileBits | (the tile's number among this expert's tiles), or -1 if there are fewer tiles. A
  /// lane takes one expert at a time; a prefix sum of the experts' tile counts gives each expert's first tile. The
  /// result is scalar.
  FORGE_DEVICE static int numbered(int tile, const Lds& lds) {
    i32 found = -1;
    int before = 0;
    for (int base = 0; base < Experts; base += kWave) {
      const int expert = base + lane_id(), tiles = expert < Experts ? ceil_div(lds.counts.get(expert), TileSlots) : 0;
      const int up_to = sum_to_lane(tiles), first = before + up_to - tiles;
      if (tile >= first && tile < first + tiles) found = expert << kTileBits | (tile - first);
      before += shuffle(up_to, kWave - 1);
    }
    return uniform(max_lanes<kWave>(found));
  }
};

/// Maps row t of a tile to its row in memory, by a list in shared memory. Has the same interface as RowsInOrder
/// (tile.h).
template <int Count>
struct RowsListed {
  const Shared<i32, Count>& list;
  int first, count;  ///< the tile's first entry in the list; entries in the list
  FORGE_DEVICE bool has(int t) const { return first + t < count; }
  FORGE_DEVICE int row(int t) const { return list.get(has(t) ? first + t : 0); }
  FORGE_DEVICE int clamped_row(int t) const { return row(t); }
};

}  // namespace forge::gpu
