#pragma once
// Grouping of the slots of a mixture of experts for the grouped GEMM (matmul_tiles.h). A slot is a token and one of its
// experts. Each tile of the grid multiplies up to TileSlots slots that have the same expert.
//
//   expert of slot   0  2  0  1  0  2          TileSlots = 2
//   sorted           counts 3, 1, 2 | slots 0, 2, 4, 3, 1, 5
//   tiles            expert 0: slots 0, 2 | expert 0: slot 4 | expert 1: slot 3 | expert 2: slots 1, 5
//
// SortSlots, a launch before the product, writes the counts and the slots by expert, ascending. A block of the product
// finds its tile by a prefix sum over the experts' counts.

#include "kernels/gpu/tile.h"

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

/// Sorts the slots by expert: a block for each expert counts the slots of lower experts, which come before its own. C
/// has kExperts, kSlots (experts of a token), kTokensTotal (slots that memory has) and kCount.
template <class C>
struct SortSlots {
  static constexpr int kThreads = 256, kBlocks = C::kExperts, kWaves = kThreads / kWave;
  struct Lds {
    Shared<i32, kWaves> matches, lower;  ///< of each wave
  };
  struct Args {
    const i32* experts;  ///< [kTokensTotal]: the expert of each slot
    const i32* counts;
    i32* sorted;  ///< [kExperts] slots of each expert, then [kTokensTotal] the slots by expert
  };
  /// Each thread has a contiguous share of the slots, so that a slot's place among those of its expert is a prefix sum
  /// over lanes, then over waves.
  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    wait_for_producer();
    const int expert = block_id(), most = C::kTokensTotal / C::kSlots;
    const int whole = whole_tiles(uniform(load(args.counts + C::kCount)));
    const int slots = (whole < most ? whole : most) * C::kSlots;
    const int share = ceil_div(slots, kThreads), begin = thread_id() * share;
    const int end = begin + share < slots ? begin + share : slots;
    i32 matches = 0, lower = 0;
    for (int i = begin; i < end; ++i) {
      const i32 own = load(args.experts + i);
      matches += own == expert ? 1 : 0;
      lower += own < expert ? 1 : 0;
    }
    const i32 up_to = sum_to_lane(matches), all_lower = sum_lanes<kWave>(lower);
    if (lane_id() == kWave - 1) {
      lds.matches.set(wave_id(), up_to);
      lds.lower.set(wave_id(), all_lower);
    }
    barrier();
    int place = up_to - matches, count = 0;
    for (int w = 0; w < kWaves; ++w) {
      const int of_wave = lds.matches.get(w);
      place += (w < wave_id() ? of_wave : 0) + lds.lower.get(w);
      count += of_wave;
    }
    if (thread_id() == 0) args.sorted[expert] = count;
    for (int i = begin; i < end; ++i)
      if (load(args.experts + i) == expert) args.sorted[C::kExperts + place++] = i;
  }
};

/// Experts: number of experts. TileSlots: slots in a tile. Threads: of a block.
template <int Experts, int TileSlots, int Threads>
struct SlotTiles {
  /// The largest number of tiles that `slots` slots can make: all full ones, and a partly filled one for each expert.
  FORGE_DEVICE static constexpr int most(int slots) { return slots / TileSlots + (slots < Experts ? slots : Experts); }
  struct Lds {
    Shared<i32, TileSlots> slots;  ///< the tile's slots, ascending
  };
  struct Tile {
    int expert, count;  ///< count: slots in the tile. {-1, 0}: there is no tile with this number
  };

  /// Finds tile number `tile` and writes its slots to lds.slots. sorted: as SortSlots has written it. All lanes of the
  /// block call this together; it ends with a barrier.
  FORGE_DEVICE static Tile find(const i32* sorted, int tile, Lds& lds) {
    const Found found = numbered(sorted, tile);
    if (found.expert < 0) return {-1, 0};
    const int count = found.left < TileSlots ? found.left : TileSlots;
    for (int i = thread_id(); i < count; i += Threads) lds.slots.set(i, load(sorted + Experts + found.first + i));
    barrier();
    return {found.expert, count};
  }

 private:
  /// A tile's expert (-1: none), its first place among all slots, and the expert's slots from there on.
  struct Found {
    int expert, first, left;
  };
  /// A lane takes one expert at a time; prefix sums of the experts' tiles and slots say where each begins. The result
  /// is scalar.
  FORGE_DEVICE static Found numbered(const i32* sorted, int tile) {
    Found mine{-1, 0, 0};
    int tiles_before = 0, slots_before = 0;
    for (int base = 0; base < Experts; base += kWave) {
      const int expert = base + lane_id();
      const i32 count = expert < Experts ? load(sorted + expert) : 0, tiles = ceil_div(count, TileSlots);
      const int tiles_to = sum_to_lane(tiles), slots_to = sum_to_lane(count);
      const int number = tile - (tiles_before + tiles_to - tiles);
      if (number >= 0 && number < tiles)
        mine = {expert, slots_before + slots_to - count + number * TileSlots, count - number * TileSlots};
      tiles_before += shuffle(tiles_to, kWave - 1);
      slots_before += shuffle(slots_to, kWave - 1);
    }
    return {uniform(max_lanes<kWave>(mine.expert)), uniform(max_lanes<kWave>(mine.first)),
            uniform(max_lanes<kWave>(mine.left))};
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
