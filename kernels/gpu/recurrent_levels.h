#pragma once
// What chunks with a decay for each row of the state share (recurrent_row_decay.h, recurrent_two_keys.h). With a_t,d
// the decay of row d by token t, the effect of token j on a later token i is a sum over rows of two vectors' elements
// times the decays between both tokens.
//
// These are products of matrices if the decays are split at a token m between j and i: those from m on go to i's row,
// those before it to j's. m is the middle of the smallest segment of 8, 16 or 32 tokens that has both; pairs inside
// of 4 tokens are summed up without matrix instructions. So no factor has a decay that is not between j and i, none is
// larger than its vector, and nothing overflows or cancels however strong the decays are. The factors of a segment are
// those of its halves times the decay of a half.
//
//   tokens        0 .. 3   4 .. 7   8 .. 11  12 .. 15   16 ..
//   near          pairs inside of 4 tokens: f32, by the lanes that have the tokens
//   level 0       left     right    left     right      left ..      segments of 8
//   level 1       left     left     right    right      left ..      segments of 16
//   level 2       left     left     left     left       right ..     the chunk
//
// A level has 16 tokens that are left of a middle and 16 that are right of it. A product of vectors is one tile of 16
// by 16, of which the pairs in the same segment are kept.

#include "kernels/gpu/recurrent_chunk.h"

namespace forge::gpu {

/// LaneRows: 8 or 4 rows of the state, a unit or half of one, of which a lane has 4 tokens.
template <class C, int LaneRows>
struct RowLevels : StateChunk<C> {
  using Base = StateChunk<C>;
  using S = typename Base::S;
  using Base::kChunk, Base::kBlock, Base::kThreads, Base::kSlab, Base::kSlabs, Base::own_thread;
  static constexpr bool kKeepsAddresses = false;
  static constexpr int kLevels = 3;  ///< level n has segments of 8 << n tokens
  static constexpr int kGroup = 4, kGroups = kChunk / kGroup, kLaneRows = LaneRows;
  static constexpr int kParts = 8 / kLaneRows, kGroupLanes = kUnitsOfRow * kParts, kSlabLanes = kGroups * kGroupLanes;
  static constexpr int kJobs = kSlabs * kSlabLanes;
  static_assert(kJobs <= kThreads, "kWaves must be larger, so that each thread has 4 tokens of kLaneRows rows at most");
  using Rows = float[kGroup][kLaneRows];
  /// f16 numbers of a lane's rows.
  struct Packed {
    u32 at[kLaneRows / 2];
  };

  /// What a thread works on.
  struct Job {
    u32 thread = static_cast<u32>(own_thread());
    int slab = static_cast<int>(thread / kSlabLanes), group = static_cast<int>(thread % kSlabLanes / kGroupLanes);
    int lane = static_cast<int>(thread % kGroupLanes);  ///< of the group's
    int unit = static_cast<int>(thread % kGroupLanes / kParts);
    int part = static_cast<int>(thread % kParts);  ///< of the unit
    bool real = kJobs % kWave == 0 || thread < kJobs;
    FORGE_DEVICE int row(int e) const { return slab * kSlab + S::four_of(unit, part + e / 4) + e % 4; }
    FORGE_DEVICE int token(int t) const { return group * kGroup + t; }
  };
  /// False for waves whose lanes have no work.
  FORGE_DEVICE static bool works() { return kJobs == kThreads || wave_id() * kWave < kJobs; }

  FORGE_DEVICE static void load_row(const Job& job, const float* from, float (&to)[kLaneRows]) {
    FORGE_UNROLL
    for (int four = 0; four < kLaneRows / 4; ++four) {
      F32x4 values{};
      if (const int first = job.row(4 * four); job.real && Base::is_row(first))
        values = __builtin_bit_cast(F32x4, load16(from + first));
      FORGE_UNROLL
      for (int e = 0; e < 4; ++e) to[4 * four + e] = values.at[e];
    }
  }

  /// Adds up `2 * Count` sums of pairs of lanes that differ in one bit, which is set in lanes that are `upper`: these
  /// get the second half of the sums, the others the first.
  template <int Apart, int Count>
  FORGE_DEVICE static void share_sums(const float (&sums)[2 * Count], bool upper, float (&own)[Count]) {
    FORGE_UNROLL
    for (int i = 0; i < Count; ++i) {
      const float first = sums[i], second = sums[Count + i];  // `upper ? sums[a] : sums[b]` would be an address
      own[i] = (upper ? second : first) + shuffle_xor<Apart>(upper ? first : second);
    }
  }

  /// Products of decays of a thread's rows over the half of a segment that has its tokens: of those before them, those
  /// behind them, and all.
  struct Around {
    float before[kLaneRows], behind[kLaneRows], all[kLaneRows];
    /// Adds the other half, of which `others` are the products.
    FORGE_DEVICE void add_half(int e, bool right, float other) {
      before[e] *= right ? other : 1.0f;
      behind[e] *= right ? 1.0f : other;
      all[e] *= other;
    }
  };
  /// Whether a thread's tokens are right of the middle, in segments whose halves have `half` tokens.
  FORGE_DEVICE static bool is_right(const Job& job, int half) { return (job.token(0) & half) != 0; }
  /// The row of a thread's token t among the 16 on its side.
  FORGE_DEVICE static int row_of_side(const Job& job, int half, int t) {
    return job.token(t) / (2 * half) * half + job.token(t) % half;
  }
  /// Makes products over halves of `Half` tokens those over segments. The lanes of both halves are in one wave.
  template <int Half>
  FORGE_DEVICE static void widen(const Job& job, Around& around) {
    constexpr int kApart = Half / kGroup * kGroupLanes;
    static_assert(kApart < kWave);
    FORGE_UNROLL
    for (int e = 0; e < kLaneRows; ++e) around.add_half(e, is_right(job, Half), shuffle_xor<kApart>(around.all[e]));
    keep_schedule();
  }

  /// The tokens of a level's tile: i of a row, j of a column. Only pairs of the same segment count.
  struct Pair {
    int i, j;
    bool counts;
  };
  FORGE_DEVICE static Pair pair_of(int level, int row, int column) {
    const int bits = level + 2, half = 1 << bits;
    return {(row >> bits) * 2 * half + half + (row & (half - 1)), (column >> bits) * 2 * half + (column & (half - 1)),
            row >> bits == column >> bits};
  }

  FORGE_DEVICE static Packed product(const float (&row)[kLaneRows], const float (&decay)[kLaneRows]) {
    Packed out;
    FORGE_UNROLL
    for (int w = 0; w < kLaneRows / 2; ++w)
      out.at[w] = f16_pair(row[2 * w] * decay[2 * w], row[2 * w + 1] * decay[2 * w + 1]);
    return out;
  }
  /// Stores a thread's part of the unit at index `unit`.
  template <class Lds>
  FORGE_DEVICE static void store_part(const Job& job, int unit, const Packed& words, Lds& lds) {
    if constexpr (kParts == 1) {
      lds.units.set(unit, __builtin_bit_cast(U32x4, words));
    } else {
      FORGE_UNROLL
      for (int w = 0; w < kLaneRows / 2; ++w)
        lds.units.set_word(unit * 4 + job.part * (kLaneRows / 2) + w, words.at[w]);
    }
  }
  /// Without this the compiler would keep the factors of f16 numbers instead, which take twice the registers.
  FORGE_DEVICE static void keep(Packed& words) {
    FORGE_UNROLL
    for (u32& word : words.at) word = kept(word);
  }
  FORGE_DEVICE static u32 kept(u32 word) { return static_cast<u32>(opaque(static_cast<int>(word))); }
};

}  // namespace forge::gpu
