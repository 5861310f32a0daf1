#pragma once
// The choice of the best blocks of positions by their scores (select_keys.h), for one list: a radix search for the key
// of the kTopK-th best, then one pass that writes the blocks in ascending order. Scores are -infinity or finite.

#include "kernels/gpu/float_order.h"
#include "kernels/gpu/key_lists.h"

namespace forge::gpu {

template <class C>
struct KeyChoice : KeyLists<C> {
  using Lists = KeyLists<C>;
  using Lists::kThreads, Lists::kUnit;
  static constexpr int kParts = C::kBlock / kUnit;  ///< scores of a block
  static constexpr int kDigitBits = 11, kBins = 1 << kDigitBits, kBinsOfThread = kBins / kThreads;
  static constexpr int kAhead = 8;  ///< loads of a lane in flight
  static_assert(kBins % kThreads == 0, "a thread has whole bins");

  struct Lds {
    Shared<i32, kBins> bins;
    Shared<i32, 2 * C::kWaves> waves;
    Shared<i32, 2> found;
  };
  /// The scores of a list, how many there are, and how many blocks they are of.
  struct List {
    const float* scores;
    int count, blocks;
  };

  /// The score of block b as an unsigned integer that rises with it. Both zeros are equal.
  FORGE_DEVICE static u32 key_of(const List& list, int b) {
    if (b >= list.blocks - C::kLocal) return 0xffffffffu;
    float best = load(list.scores + b * kParts);
    for (int part = 1; part < kParts; ++part)
      if (b * kParts + part < list.count) best = max_of(best, load(list.scores + b * kParts + part));
    return rising_bits(best == 0 ? 0.0f : best);
  }
  /// Loads the keys of kAhead blocks, b and every stride-th after it, before the first is used; each(i, key, block) is
  /// called for those before `end`.
  template <class Each>
  FORGE_DEVICE static void each_key(const List& list, int b, int stride, int end, Each&& each) {
    u32 keys[kAhead];
    FORGE_UNROLL
    for (int i = 0; i < kAhead; ++i) keys[i] = b + i * stride < end ? key_of(list, b + i * stride) : 0u;
    FORGE_UNROLL
    for (int i = 0; i < kAhead; ++i) each(i, keys[i], b + i * stride);
  }

  /// Sum over the lanes up to this one.
  template <int Step = 1>
  FORGE_DEVICE static i32 scan_lanes(i32 value) {
    if constexpr (Step < kWave) {
      const i32 other = shuffle(value, lane_id() >= Step ? lane_id() - Step : lane_id());
      return scan_lanes<2 * Step>(value + (lane_id() >= Step ? other : 0));
    } else {
      return value;
    }
  }

  /// Finds the largest digit for which the bins from it up have at least `wanted` keys. Returns it, and takes from
  /// `wanted` the keys of larger digits. Thread 0 has the largest digits.
  FORGE_DEVICE static u32 find_digit(Lds& lds, int& wanted) {
    const int top = kBins - 1 - thread_id() * kBinsOfThread;
    i32 own = 0;
    FORGE_UNROLL
    for (int i = 0; i < kBinsOfThread; ++i) own += lds.bins.get(top - i);
    const i32 up_to = scan_lanes(own);
    if (lane_id() == kWave - 1) lds.waves.set(wave_id(), up_to);
    barrier();
    i32 before = up_to - own;
    for (int w = 0; w < wave_id(); ++w) before += lds.waves.get(w);
    if (before < wanted && before + own >= wanted) {
      int digit = top;
      while (before + lds.bins.get(digit) < wanted) before += lds.bins.get(digit--);
      lds.found.set(0, digit);
      lds.found.set(1, before);
    }
    barrier();
    wanted -= lds.found.get(1);
    return static_cast<u32>(lds.found.get(0));
  }
  /// The key of the kTopK-th best block, by radix search: each pass counts, for all values of the next digit, the keys
  /// whose higher digits are those found so far. `equal` becomes the number of blocks with that key that are chosen.
  FORGE_DEVICE static u32 last_key(const List& list, Lds& lds, int& equal) {
    constexpr int kDigits = 3, kLastBits = 32 - (kDigits - 1) * kDigitBits;
    equal = C::kTopK;
    u32 prefix = 0;
    FORGE_LOOP
    for (int pass = 0; pass < kDigits; ++pass) {
      const int bits = pass == kDigits - 1 ? kLastBits : kDigitBits;
      const int shift = 32 - pass * kDigitBits - bits;
      for (int i = thread_id(); i < kBins; i += kThreads) lds.bins.set(i, 0);
      barrier();
      for (int b = thread_id(); b < list.blocks; b += kAhead * kThreads)
        each_key(list, b, kThreads, list.blocks, [&](int, u32 key, int block) {
          if (block < list.blocks && (pass == 0 || key >> shift >> bits == prefix))
            lds.bins.add(static_cast<int>(key >> shift & ((1u << bits) - 1u)), 1);
        });
      barrier();
      prefix = prefix << bits | find_digit(lds, equal);
    }
    return prefix;
  }

  /// Writes the blocks with a key above `last`, and the first `equal` of those with that key, in ascending order. Each
  /// wave has a segment of the blocks, and counts what it has of both kinds before it writes.
  FORGE_DEVICE static void write_chosen(const List& list, u32 last, int equal, i32* out, Lds& lds) {
    constexpr int kStep = kAhead * kWave;
    const int segment = ceil_div(ceil_div(list.blocks, C::kWaves), kStep) * kStep, begin = wave_id() * segment;
    const int end = begin + segment < list.blocks ? begin + segment : list.blocks;
    i32 counts[2] = {0, 0};  // above, and equal
    for (int b = begin + lane_id(); b < end; b += kStep)
      each_key(list, b, kWave, end, [&](int, u32 key, int block) {
        counts[0] += block < end && key > last ? 1 : 0;
        counts[1] += block < end && key == last ? 1 : 0;
      });
    FORGE_UNROLL
    for (int kind = 0; kind < 2; ++kind) {
      const i32 sum = sum_lanes<kWave>(counts[kind]);
      if (lane_id() == 0) lds.waves.set(kind * C::kWaves + wave_id(), sum);
    }
    barrier();
    int above = 0, same = 0;
    for (int w = 0; w < wave_id(); ++w) {
      above += lds.waves.get(w);
      same += lds.waves.get(C::kWaves + w);
    }
    for (int first = begin; first < end; first += kStep) {  // a lane has kAhead neighbours
      bool is_above[kAhead], is_same[kAhead];
      i32 own = 0;  // those above in the low half, the equal ones in the high half
      each_key(list, first + lane_id() * kAhead, 1, end, [&](int i, u32 key, int block) {
        is_above[i] = block < end && key > last;
        is_same[i] = block < end && key == last;
        own += (is_above[i] ? 1 : 0) + (is_same[i] ? 1 << 16 : 0);
      });
      const i32 up_to = scan_lanes(own), all = shuffle(up_to, kWave - 1);
      int a = above + ((up_to - own) & 0xffff), s = same + ((up_to - own) >> 16);
      FORGE_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (is_above[i] || (is_same[i] && s < equal)) out[a + (s < equal ? s : equal)] = first + lane_id() * kAhead + i;
        a += is_above[i] ? 1 : 0;
        s += is_same[i] ? 1 : 0;
      }
      above += all & 0xffff;
      same += all >> 16;
    }
  }

  /// Writes the list of a row at `position`, which sees more than kTopK blocks.
  FORGE_DEVICE static void run_list(const float* scores, int position, i32* out, Lds& lds) {
    const List list{scores, position / kUnit + 1, Lists::blocks_of(position)};
    int equal = 0;
    const u32 last = last_key(list, lds, equal);
    write_chosen(list, last, equal, out, lds);
  }
  /// The list of a row that sees only `blocks` blocks, kTopK or fewer.
  FORGE_DEVICE static void write_all(int blocks, i32* out) {
    for (int i = thread_id(); i < C::kTopK; i += kThreads) out[i] = i < blocks ? i : -1;
  }
};

}  // namespace forge::gpu
