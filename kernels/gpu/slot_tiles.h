#pragma once
// Slots (a token and one of its experts) in tiles that have one expert each: what a block of a grid of tiles
// multiplies. Nobody sorts ahead of it: a block counts the experts of all slots, finds the tile that is its own, and
// lists the slots of it, in their order. That takes a few microseconds, of the tens that its product takes.

#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

/// The sum of the values of the lanes up to this one.
FORGE_DEVICE i32 sum_to_lane(i32 value) {
  FORGE_UNROLL
  for (int step = 1; step < kWave; step *= 2) {
    const i32 other = shuffle(value, lane_id() >= step ? lane_id() - step : lane_id());
    if (lane_id() >= step) value += other;
  }
  return value;
}

/// Experts of them, TileSlots slots a tile, blocks of Threads.
template <int Experts, int TileSlots, int Threads>
struct SlotTiles {
  static constexpr int kWaves = Threads / kWave, kTileBits = 16;
  /// Tiles that `slots` can make at most: each expert has one that is not full.
  FORGE_DEVICE static constexpr int most(int slots) { return slots / TileSlots + (slots < Experts ? slots : Experts); }
  struct Lds {
    Shared<i32, Experts> counts;
    Shared<i32, kWaves> matches;  ///< of the waves
    Shared<i32, TileSlots> slots;
  };
  struct Tile {
    int expert, count;  ///< -1 and none: there is no such tile
  };

  /// Of `slots` slots, whose experts are `experts`; lds.slots has the tile's in order. All lanes of the block; ends
  /// with a barrier.
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
  /// The expert of the tile-th tile, and the tile's number among the expert's in the low bits; -1 for none. Known to be
  /// the same in all lanes.
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

/// Where a tile's rows are in memory: as a list says.
template <int Count>
struct RowsListed {
  const Shared<i32, Count>& list;
  int first, count;  ///< of the list
  FORGE_DEVICE bool has(int t) const { return first + t < count; }
  FORGE_DEVICE int row(int t) const { return list.get(has(t) ? first + t : 0); }
  FORGE_DEVICE int near(int t) const { return row(t); }
};

}  // namespace forge::gpu
