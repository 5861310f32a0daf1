#pragma once
// The choice of the keys that take part in sparse attention (ir::SelectKeysAttrs), for ragged rows: each row t has its
// own sequence and position. It has two parts:
//
//   KeyScores   scores of a row's positions, by its index queries and the paged f16 pool of index keys (one head)
//   KeyChoice   the numbers of the best blocks of positions, ascending, then -1
//
// Steps with few rows run them as two launches: several blocks (workers) share the positions of a row, then a block
// chooses for each list. Steps with many rows have one launch, SelectKeys: a block does both for one row after the
// other, so that only the rows in work need room for scores. Rows that see no more than kTopK blocks keep them all, and
// nothing is read of their keys.
//
// With weights a position has one score, the sum over heads j of weights[j] * max(0, q_j . k). Without, each head has a
// list of its own, by q_j . k. A block's score is its best position's; of equal scores the earlier block wins; NaN
// counts as the worst.

#include "kernels/gpu/float_order.h"
#include "kernels/gpu/formats.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names Pool (KvPool with one head), kHeads, kTopK and kTableBlocks.
struct SelectKeysDefaults {
  static constexpr int kTokensTotal = 1;
  static constexpr int kBlock = 1;         ///< positions that are chosen together
  static constexpr int kLocal = 0;         ///< newest blocks that are always chosen
  static constexpr bool kWeighted = true;  ///< one list by the heads' weighted sum, else one for each head
  static constexpr int kQueryFloats = 0;   ///< floats from row to row of q; 0: kHeads * head_dim
  static constexpr int kWeightFloats = 0;  ///< floats from row to row of weights; 0: kHeads
  static constexpr int kWaves = 8;         ///< waves of a block
  static constexpr int kWorkers = 1;       ///< most blocks that share the positions of a row (ScoreKeys)
  static constexpr int kRowBlocks = 1;     ///< blocks of the grid (SelectKeys)
};

/// What both parts know of a configuration.
template <class C>
struct KeyLists {
  using Pool = typename C::Pool;
  static constexpr int kThreads = C::kWaves * kWave;
  static constexpr int kLists = C::kWeighted ? 1 : C::kHeads;
  static constexpr int kChunk = 32;  ///< positions that are scored together; all lie in one block of the pool
  /// Positions of a score in scratch: if blocks are whole chunks, the best score of each chunk is kept.
  static constexpr int kUnit = C::kBlock % kChunk == 0 ? kChunk : 1;
  static constexpr int kScores = C::kTableBlocks * Pool::kBlockTokens / kUnit;  ///< of a list
  static constexpr float kMinusInfinity = __builtin_bit_cast(float, 0xff800000u), kLargest = 3.402823466e38f;
  static_assert(Pool::kKvHeads == 1 && Pool::kHeadDim % 8 == 0 && Pool::kBlockTokens % kChunk == 0,
                "index keys are those of one head, whole units wide, in blocks of whole chunks");
  static_assert(C::kLocal <= C::kTopK, "local blocks are among the chosen ones");

  /// Blocks that a row at `position` (-1: padding) sees.
  FORGE_DEVICE static int blocks_of(int position) { return position < 0 ? 0 : position / C::kBlock + 1; }
};

template <class C>
struct KeyScores : KeyLists<C> {
  using Lists = KeyLists<C>;
  using Lists::kChunk, Lists::kThreads, Lists::kScores, Lists::kUnit;
  using Pool = typename C::Pool;
  static constexpr int kDim = Pool::kHeadDim, kUnits = kDim / 8;
  static constexpr int kGroups = kThreads / kChunk;  ///< groups of threads, a thread for each position of a chunk
  static constexpr int kHeadsOfGroup = ceil_div(C::kHeads, kGroups);
  static constexpr int kTogether = kHeadsOfGroup < 8 ? kHeadsOfGroup : 8;  ///< heads that a thread multiplies at once
  static constexpr int kLoads = ceil_div(kChunk * kUnits, kThreads);       ///< units that a thread stages
  static constexpr int kKeyStride =
      kUnits | 1;  ///< units from row to row in shared memory; odd, against bank conflicts
  static constexpr int kQueryStride = kDim / 4 + 1;  ///< of four floats
  using Part = Elements<F16>;

  struct Lds {
    Shared<U32x4, kChunk * kKeyStride> keys;
    Shared<F32x4, C::kHeads * kQueryStride> query;
    Shared<float, C::kHeads> weights;
    Shared<float, kGroups * kChunk> sums;  ///< [kGroups][kChunk]
  };
  /// The index queries and weights of row t, its position and the table of its sequence.
  struct Row {
    const float *q, *weights;
    const u16* keys;
    const i32* table;
    int position;
  };

  FORGE_DEVICE static void load_keys(const Row& row, int chunk, U32x4 (&out)[kLoads]) {
    const int first = chunk * kChunk;
    const int slot = load(row.table + first / Pool::kBlockTokens) * Pool::kBlockTokens + first % Pool::kBlockTokens;
    FORGE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kThreads + thread_id();
      out[i] = U32x4{};
      if (at < kChunk * kUnits && first + at / kUnits <= row.position)
        out[i] = load16(row.keys + Pool::index(slot + at / kUnits, 0, at % kUnits * 8));
    }
  }
  FORGE_DEVICE static void store_keys(Lds& lds, const U32x4 (&staged)[kLoads]) {
    FORGE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kThreads + thread_id();
      if (at < kChunk * kUnits) lds.keys.set(at / kUnits * kKeyStride + at % kUnits, staged[i]);
    }
  }
  FORGE_DEVICE static void load_query(const Row& row, Lds& lds) {
    for (int i = thread_id(); i < C::kHeads * kDim / 4; i += kThreads)
      lds.query.set(i / (kDim / 4) * kQueryStride + i % (kDim / 4), __builtin_bit_cast(F32x4, load16(row.q + i * 4)));
    if constexpr (C::kWeighted)
      for (int i = thread_id(); i < C::kHeads; i += kThreads) lds.weights.set(i, load(row.weights + i));
  }

  /// Writes the scores of a list's chunk. The first 32 lanes of each group of 32 have them, `count` of which exist.
  FORGE_DEVICE static void write(float* scores, int chunk, int count, float score, bool real) {
    const int lane = thread_id() % kChunk;
    const bool counts = lane < count && score > Lists::kMinusInfinity;  // false for NaN
    score = counts ? min_of(score, Lists::kLargest) : Lists::kMinusInfinity;
    if constexpr (kUnit == kChunk) {
      score = max_lanes<kChunk>(score);
      if (real && lane == 0) scores[chunk] = score;
    } else {
      if (real && lane < count) scores[chunk * kChunk + lane] = score;
    }
  }
  /// Scores the chunk in shared memory. Ends without a barrier.
  FORGE_DEVICE static void add_chunk(const Row& row, int chunk, Lds& lds, float* scores) {
    const int key = thread_id() % kChunk, group = thread_id() / kChunk;
    const int count = row.position + 1 - chunk * kChunk;
    float sum = 0;
    FORGE_LOOP
    for (int first = 0; first < kHeadsOfGroup; first += kTogether) {
      float dots[kTogether] = {};
      int heads[kTogether];
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        heads[i] = (first + i) * kGroups + group;
        if (heads[i] >= C::kHeads) heads[i] = C::kHeads;
      }
      for (int unit = 0; unit < kUnits; ++unit) {
        const Part part = elements_of<F16>(lds.keys.get(key * kKeyStride + unit));
        FORGE_UNROLL
        for (int i = 0; i < kTogether; ++i) {
          const int head = heads[i] < C::kHeads ? heads[i] : C::kHeads - 1;
          FORGE_UNROLL
          for (int half = 0; half < 2; ++half) {
            const F32x4 q = lds.query.get(head * kQueryStride + unit * 2 + half);
            FORGE_UNROLL
            for (int j = 0; j < 4; ++j) dots[i] = fma_of(q.at[j], part.at[half * 4 + j], dots[i]);
          }
        }
      }
      FORGE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const bool real = heads[i] < C::kHeads;
        if constexpr (C::kWeighted) {
          if (real) sum = fma_of(lds.weights.get(heads[i]), dots[i] > 0 ? dots[i] : 0.0f, sum);
        } else {
          write(scores + static_cast<u64>(real ? heads[i] : 0) * kScores, chunk, count, dots[i], real);
        }
      }
    }
    if constexpr (C::kWeighted) {
      lds.sums.set(thread_id(), sum);
      barrier();
      float total = 0;
      FORGE_UNROLL
      for (int g = 0; g < kGroups; ++g) total += lds.sums.get(g * kChunk + key);
      write(scores, chunk, count, total, group == 0);
    }
  }

  /// Scores chunks `first`, `first` + stride, ... of a row into scores [lists][kScores].
  FORGE_DEVICE static void run_row(const Row& row, int first, int stride, Lds& lds, float* scores) {
    const int end = row.position / kChunk + 1;
    load_query(row, lds);
    U32x4 staged[kLoads];
    if (first < end) load_keys(row, first, staged);
    FORGE_LOOP
    for (int chunk = first; chunk < end; chunk += stride) {
      barrier();
      store_keys(lds, staged);
      barrier();
      if (chunk + stride < end) load_keys(row, chunk + stride, staged);
      add_chunk(row, chunk, lds, scores);
    }
  }
};

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

/// The members are those of all three kernels; ScoreKeys does not write `out`, ChooseKeys reads only positions, counts
/// and scores.
struct SelectKeysArgs {
  const float* q;        ///< [rows][kHeads][head_dim]
  const float* weights;  ///< [rows][kHeads]; read if kWeighted
  const u16* keys;       ///< the layer's pool
  const i32* positions;  ///< [rows]; -1: padding, whose lists are empty
  const i32* sequences;  ///< [rows]
  const i32* tables;     ///< [sequences][kTableBlocks]
  const i32* counts;
  float* scores;  ///< [rows, or kRowBlocks for SelectKeys][lists][kScores]
  i32* out;       ///< [rows][lists][kTopK]
};
template <class C>
FORGE_DEVICE typename KeyScores<C>::Row scored_row(const SelectKeysArgs& args, int t, int position) {
  constexpr int kFloats = C::kQueryFloats > 0 ? C::kQueryFloats : C::kHeads * C::Pool::kHeadDim;
  constexpr int kWeightFloats = C::kWeightFloats > 0 ? C::kWeightFloats : C::kHeads;
  return {args.q + static_cast<u64>(t) * kFloats, args.weights + static_cast<u64>(t) * kWeightFloats, args.keys,
          args.tables + static_cast<u64>(load(args.sequences + t)) * C::kTableBlocks, position};
}

/// The first of two launches. Grid: [rows][kWorkers].
template <class C>
struct ScoreKeys {
  using Scores = KeyScores<C>;
  using Args = SelectKeysArgs;
  using Lds = typename Scores::Lds;
  static constexpr int kThreads = Scores::kThreads, kBlocks = C::kTokensTotal * C::kWorkers;
  static constexpr int kChunksPerWorker = 2;  ///< least chunks of a worker before another one is used

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    const int t = block_id() / C::kWorkers, worker = block_id() % C::kWorkers;
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const int position = uniform(load(args.positions + t));
    const int wanted = ceil_div(position / Scores::kChunk + 1, kChunksPerWorker);
    const int workers = wanted < C::kWorkers ? wanted : C::kWorkers;
    if (worker >= workers) return;
    wait_for_producer();
    if (Scores::blocks_of(position) <= C::kTopK) return;
    Scores::run_row(scored_row<C>(args, t, position), worker, workers, lds,
                    args.scores + static_cast<u64>(t) * Scores::kLists * Scores::kScores);
  }
};

/// The second launch. Grid: [rows][lists].
template <class C>
struct ChooseKeys {
  using Choice = KeyChoice<C>;
  using Args = SelectKeysArgs;
  using Lds = typename Choice::Lds;
  static constexpr int kThreads = Choice::kThreads, kBlocks = C::kTokensTotal * Choice::kLists;

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    const int t = block_id() / Choice::kLists;
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const int position = uniform(load(args.positions + t)), blocks = Choice::blocks_of(position);
    i32* out = args.out + static_cast<u64>(block_id()) * C::kTopK;
    wait_for_producer();
    if (blocks <= C::kTopK)
      Choice::write_all(blocks, out);
    else
      Choice::run_list(args.scores + static_cast<u64>(block_id()) * Choice::kScores, position, out, lds);
  }
};

/// Both at once, for steps with many rows. Grid: kRowBlocks, each of which has every kRowBlocks-th row.
template <class C>
struct SelectKeys {
  using Scores = KeyScores<C>;
  using Choice = KeyChoice<C>;
  using Args = SelectKeysArgs;
  union Lds {
    typename Scores::Lds scores;
    typename Choice::Lds choice;
  };
  static constexpr int kThreads = Scores::kThreads, kBlocks = C::kRowBlocks;

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    wait_for_producer();
    float* scores = args.scores + static_cast<u64>(block_id()) * Scores::kLists * Scores::kScores;
    for (int t = block_id(); t < C::kTokensTotal && !idle_tile(args.counts, kTokenCount, t); t += C::kRowBlocks) {
      const int position = uniform(load(args.positions + t)), blocks = Scores::blocks_of(position);
      i32* out = args.out + static_cast<u64>(t) * Scores::kLists * C::kTopK;
      if (blocks <= C::kTopK) {
        for (int list = 0; list < Scores::kLists; ++list) Choice::write_all(blocks, out + list * C::kTopK);
        continue;
      }
      barrier();  // the row before has been chosen
      Scores::run_row(scored_row<C>(args, t, position), 0, 1, lds.scores, scores);
      barrier();
      for (int list = 0; list < Scores::kLists; ++list) {
        Choice::run_list(scores + static_cast<u64>(list) * Scores::kScores, position, out + list * C::kTopK,
                         lds.choice);
        barrier();
      }
    }
  }
};

}  // namespace forge::gpu
