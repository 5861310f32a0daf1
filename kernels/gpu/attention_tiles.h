#pragma once
// Attention for prefill by matrix instructions (FlashAttention: Dao, arXiv 2205.14135 and 2307.08691). A block computes
// kTileTokens consecutive rows of one sequence, which share keys and values, for kTileHeads query heads of one KV head;
// a wave computes 16 rows of one head, or a part of their columns. For each chunk of kChunk tokens:
//
//   keys, values   global -> shared memory, as F16; values transposed
//   scores         = queries * keys                  matrix instructions, f32
//   weights        = 2^(score - running maximum)     online softmax, in registers, to F16
//   out            = out * keep + weights * values   matrix instructions, f32, in registers
//
// Which of them are queries' rows or columns, and the softmax: score_tiles.h.
//
// Shared memory has rows of 32 columns in four units (matrix_tile.h: unit_place), with slabs of 32 along k:
//
//   region    slab           row               columns of a row
//   keys      32 dimensions  key of the chunk  dimensions        (of the first product; in the order of row_of_k)
//   values    32 keys        dimension         keys              (of the second product, hence transposed)
//   own       -              of the wave       queries, on their way to fragments
//
// Wide heads: kParts waves share the 16 rows of a head, because one wave's registers would not hold its queries and
// outputs. Each multiplies its own columns; their partial scores meet in shared memory, where every wave adds them up
// in the same order, so all have the same softmax. To save shared memory, the values then take the place of the keys.
//
// A step may also have rows that are not part of such a run, as decode rows of other sequences. They are computed by
// blocks as in attention.h. The grid has blocks for both cases; each block decides by find_prompt(), from the step's
// positions, whether its rows are its own or are left to the other kind. Most steps have few such rows, and these
// follow each other, so a block looks at several rows that are far apart.

#include "kernels/gpu/attention.h"
#include "kernels/gpu/score_tiles.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names what AttentionDefaults needs. kWaves is kTileHeads *
/// kTileTokens / 16 * kParts.
struct AttentionTilesDefaults : AttentionDefaults {
  using Tile = NativeTile;
  static constexpr int kWorkers = 1;
  static constexpr int kTileHeads = 1, kTileTokens = 16, kWaves = 1;
  static constexpr int kChunk = 32;
  static constexpr int kParts = 1;     ///< waves that share the columns of a head
  static constexpr int kRowTurns = 1;  ///< rows that a block of rows looks at, kTokensTotal / kRowTurns apart
};

/// RowsOf: the kernel for rows that no tile has. Rows of latents (latent_tiles.h) are keys and values at once.
template <class C, class RowsOf = Attention<C>>
struct AttentionTiles : ScoreTiles<C, RowsOf> {
  using Tiles = ScoreTiles<C, RowsOf>;
  using Tiles::kAcross, Tiles::kKeySlabs, Tiles::kKeyTiles, Tiles::kOutTiles, Tiles::kPartDim, Tiles::kParts,
      Tiles::kPartSlabs, Tiles::kQueriesOfLane, Tiles::kRowsOfWave, Tiles::kSlabTiles, Tiles::other_at,
      Tiles::own_query, Tiles::query_at, Tiles::row_of_key;
  using typename Tiles::Scores, typename Tiles::State, typename Tiles::Weights, typename Tiles::Words;
  static constexpr int kWavesOfHead = C::kTileTokens / kRowsOfWave, kWaves = C::kWaves;
  using Rows = RowsOf;
  using Args = typename Rows::Args;
  using Pool = typename C::Pool;
  using Format = typename Pool::Format;
  using T = typename C::Tile;
  static constexpr int kHeadDim = Pool::kHeadDim, kHeadsOfKv = C::kHeads / Pool::kKvHeads;
  static constexpr int kValueDim = Rows::kValueDim, kValueRow = Rows::kShared ? kHeadDim : kValueDim;
  static constexpr int kThreads = kWaves * kWave;
  static constexpr int kTokenTiles = ceil_div(C::kTokensTotal, C::kTileTokens), kJobs = C::kHeads / C::kTileHeads;
  static constexpr int kRowBlocks = Rows::kBlocks / C::kRowTurns;
  static constexpr int kTileBlocks = kTokenTiles * kJobs, kBlocks = kTileBlocks + kRowBlocks;
  static constexpr int kSlab = Tiles::kSlab, kDimSlabs = kHeadDim / kSlab, kValueSlabs = kValueDim / kSlab;
  static constexpr int kFewest = 8;  ///< least rows for which a tile is used
  static_assert(C::kWorkers == 1, "kWorkers must be 1");
  static_assert(C::kTokensTotal % C::kRowTurns == 0, "the turns of a block of rows must divide kTokensTotal");
  static_assert(kValueDim % kSlab == 0 && !Rows::kSparse, "values are whole slabs, and no positions are selected");
  static_assert(T::kM == kRowsOfWave && T::kLanes == kWave && T::kF16,
                "the tile must be f16, 16 rows high and of this wave size");
  static_assert(C::kTileTokens % kRowsOfWave == 0 && kHeadsOfKv % C::kTileHeads == 0,
                "kTileTokens must be a multiple of 16, and kTileHeads must divide the heads of a KV head");
  static_assert(kWaves == C::kTileHeads * kWavesOfHead * kParts,
                "kWaves must be kTileHeads * kTileTokens / 16 * kParts");
  static_assert((kParts - 1) * kPartSlabs < kDimSlabs, "each part needs columns of the head");
  static_assert(kHeadDim % kSlab == 0 && C::kChunk % kSlab == 0, "head_dim and kChunk must be multiples of 32");
  static_assert(Pool::kBlockTokens % 8 == 0, "the pool's block_tokens must be a multiple of 8");

  // Offsets in units: keys [dim slab][key], values [key slab][dim], own [wave][..]; see above. With parts a wave's own
  // region also has its partial scores.
  static constexpr int kKeys = 0, kValues = kParts > 1 ? kKeys : kKeys + kDimSlabs *C::kChunk *kUnitsOfRow;
  static constexpr int kKeyUnits = kDimSlabs * C::kChunk * kUnitsOfRow;
  static constexpr int kValueUnits = kKeySlabs * kValueDim * kUnitsOfRow;
  static constexpr int kOwn = kValues + (kParts > 1 && kKeyUnits > kValueUnits ? kKeyUnits : kValueUnits);
  static constexpr int kScoreUnits = kKeyTiles * T::Fragments::kC / 4;  ///< of four scores, in each lane
  static constexpr int kOwnUnits = kParts > 1 ? kScoreUnits* kWave : kRowsOfWave* kUnitsOfRow;
  static constexpr int kOutStride =
      kAcross ? 17 : 16;  ///< of a row of 16 outputs; columns are written without conflicts
  union TileLds {
    Shared<U32x4, kOwn + kWaves * kOwnUnits> units;
    Shared<float, kWaves * kRowsOfWave * kOutStride> out;  ///< after the last chunk
  };
  /// A block needs one of the two.
  union Lds {
    typename Rows::Lds rows;
    TileLds tile;
    Shared<u32, 1> found;  ///< turns with rows that no tile has
  };

  /// Rows t0 .. t0+count-1 of the step: one sequence, at positions `position` and following. Together they see
  /// positions oldest .. newest. table: the sequence's block table.
  struct Prompt {
    int t0, count, position, oldest, newest;
    const i32* table;
  };
  static constexpr int kKeyTakes = ceil_div(C::kChunk * kHeadDim / 8, kThreads);
  static constexpr int kValueTakes = ceil_div(C::kChunk / 8 * kValueDim / 2, kThreads);
  using KeyRows = typename Pool::template Rows<kHeadDim>;
  using ValueRows = typename Pool::template Rows<kValueRow>;
  /// A thread's share of the next chunk, on its way to registers: 8 dimensions of a token for keys, and for values two
  /// neighbouring dimensions of eight tokens, which store_values transposes.
  struct Next {
    typename Format::TileKey keys[kKeyTakes];
    typename Format::TileValues values[kValueTakes];
  };
  using Query = U32x4[kPartSlabs][kAcross ? T::kBUnits : T::kAUnits];  ///< the wave's queries as fetched

  /// The head's columns that the wave multiplies: kPartSlabs slabs from slab0() on; the last part may have fewer. All
  /// lanes call slab0().
  FORGE_DEVICE static int slab0() { return kParts > 1 ? uniform(wave_id() % kParts) * kPartSlabs : 0; }
  FORGE_DEVICE static bool has_slab(int first, int slab) { return kDimSlabs % kParts == 0 || first + slab < kDimSlabs; }
  FORGE_DEVICE static bool has_values(int first, int slab) {
    return kValueSlabs == kPartSlabs * kParts || first + slab < kValueSlabs;
  }

  /// True if the rows of a tile are consecutive positions of one sequence and at least kFewest. All lanes of a wave
  /// call it together; all waves, and all blocks with this tile, get the same answer.
  FORGE_DEVICE static bool find_prompt(const Args& args, int tile, Prompt& out) {
    const int t0 = tile * C::kTileTokens, real = uniform(load(args.counts + kTokenCount)) - t0;
    const int most = C::kTokensTotal - t0 < C::kTileTokens ? C::kTokensTotal - t0 : C::kTileTokens;
    const int count = real < most ? real : most;
    if (count < kFewest) return false;
    const int position = uniform(load(args.positions + t0)), sequence = load(args.sequences + t0);
    int apart = position < 0 ? 1 : 0;
    for (int i = lane_id(); i < C::kTileTokens; i += kWave)
      if (i < count && (load(args.positions + t0 + i) != position + i || load(args.sequences + t0 + i) != sequence))
        apart = 1;
    if (uniform(max_lanes<kWave>(apart)) != 0) return false;
    out = {t0,
           count,
           position,
           Rows::oldest_of(position),
           position + count - 1,
           args.tables + static_cast<u64>(sequence) * C::kTableBlocks};
    return true;
  }

  /// The thread's number. For latent rows the places of a thread's units in a chunk are computed again for each chunk,
  /// because registers do not hold them all.
  FORGE_DEVICE static int own_thread() { return Rows::kShared ? opaque(thread_id()) : thread_id(); }
  /// The number of a token's row in the pools.
  FORGE_DEVICE static u64 row_of(const Prompt& prompt, int kv_head, int token) {
    const int slot = load(prompt.table + token / Pool::kBlockTokens) * Pool::kBlockTokens + token % Pool::kBlockTokens;
    return Pool::row(slot, kv_head);
  }
  /// True if the rows of the tile see each token of a chunk (not each row all of them).
  FORGE_DEVICE static bool is_inside(const Prompt& prompt, int chunk) {
    return chunk * C::kChunk >= prompt.oldest && chunk * C::kChunk + C::kChunk - 1 <= prompt.newest;
  }
  /// Issue the loads of a chunk's keys, or values. Tokens that no row sees become zeros: with a sliding window their
  /// blocks may have been freed or given to another sequence, and could hold NaN, which a weight of 0 does not cancel.
  /// Inside: no token needs to be looked at.
  template <bool Inside>
  FORGE_DEVICE static void load_keys_of(const Args& args, const Prompt& prompt, int kv_head, int chunk, Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kKeyTakes; ++i) {
      const int job = i * kThreads + own_thread(), token = chunk * C::kChunk + job / (kHeadDim / 8);
      next.keys[i] = {};
      if (job < C::kChunk * kHeadDim / 8 && (Inside || (token >= prompt.oldest && token <= prompt.newest)))
        next.keys[i].template load<KeyRows>(args.k, row_of(prompt, kv_head, token), job % (kHeadDim / 8));
    }
  }
  template <bool Inside>
  FORGE_DEVICE static void load_values_of(const Args& args, const Prompt& prompt, int kv_head, int chunk, Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kValueTakes; ++i) {
      const int job = i * kThreads + own_thread(), token0 = chunk * C::kChunk + job / (kValueDim / 2) * 8;
      next.values[i] = {};
      if (job >= C::kChunk / 8 * (kValueDim / 2)) continue;
      if (!Inside && (token0 > prompt.newest || token0 + 7 < prompt.oldest)) continue;
      const int from = Inside ? 0 : prompt.oldest - token0, to = Inside ? 7 : prompt.newest - token0;
      next.values[i].template load<ValueRows>(Rows::kShared ? args.k : args.v, row_of(prompt, kv_head, token0),
                                              job % (kValueDim / 2) * 2, from, to);
    }
  }
  FORGE_DEVICE static void load_keys(const Args& args, const Prompt& prompt, int kv_head, int chunk, Next& next) {
    if (is_inside(prompt, chunk))
      load_keys_of<true>(args, prompt, kv_head, chunk, next);
    else
      load_keys_of<false>(args, prompt, kv_head, chunk, next);
  }
  FORGE_DEVICE static void load_values(const Args& args, const Prompt& prompt, int kv_head, int chunk, Next& next) {
    if (is_inside(prompt, chunk))
      load_values_of<true>(args, prompt, kv_head, chunk, next);
    else
      load_values_of<false>(args, prompt, kv_head, chunk, next);
  }
  /// Stores loaded keys in shared memory.
  FORGE_DEVICE static void store_keys(TileLds& lds, const Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kKeyTakes; ++i) {
      const int job = i * kThreads + own_thread(), unit = job % (kHeadDim / 8), key = job / (kHeadDim / 8);
      if (job < C::kChunk * kHeadDim / 8)
        lds.units.set(
            kKeys + unit / kUnitsOfRow * C::kChunk * kUnitsOfRow + unit_place(row_of_key(key), unit % kUnitsOfRow),
            next.keys[i].expand());
    }
  }
  /// Stores loaded values, transposed: a thread has two dimensions of eight tokens, and makes one unit (eight tokens)
  /// for each of the two dimensions.
  FORGE_DEVICE static void store_values(const Prompt& prompt, int chunk, TileLds& lds, Next& next) {
    FORGE_UNROLL
    for (int i = 0; i < kValueTakes; ++i) {
      const int job = i * kThreads + own_thread(), dim = job % (kValueDim / 2) * 2, unit = job / (kValueDim / 2);
      if (job >= C::kChunk / 8 * (kValueDim / 2)) continue;
      if constexpr (Format::kScaled) {
        const int token0 = chunk * C::kChunk + unit * 8;
        if (!is_inside(prompt, chunk)) next.values[i].keep_scales(prompt.oldest - token0, prompt.newest - token0);
      }
      u32 two[8];
      next.values[i].expand(two);
      U32x4 first, second;
      FORGE_UNROLL
      for (int j = 0; j < 4; ++j) {
        first.at[j] = low_halves(two[2 * j], two[2 * j + 1]);
        second.at[j] = high_halves(two[2 * j], two[2 * j + 1]);
      }
      const int slab = kValues + unit / kUnitsOfRow * kValueDim * kUnitsOfRow;
      lds.units.set(slab + unit_place(dim, unit % kUnitsOfRow), first);
      lds.units.set(slab + unit_place(dim + 1, unit % kUnitsOfRow), second);
    }
  }

  /// Loads the wave's queries, times the scale, as fragments. They pass through the wave's own region. Rows that
  /// do not exist are zeros.
  FORGE_DEVICE static void load_query(const Args& args, const Prompt& prompt, int head, int row0, TileLds& lds,
                                      Query& query) {
    constexpr float kFactor = C::kSoftcap > 0 ? C::kScale : C::kScale * Rows::kLog2E;
    const int place = kOwn + wave_id() * kOwnUnits, first = slab0();
    FORGE_UNROLL
    for (int slab = 0; slab < kPartSlabs; ++slab) {
      FORGE_UNROLL
      for (int i = 0; i < kRowsOfWave * kUnitsOfRow / kWave; ++i) {
        const int job = i * kWave + lane_id(), row = job / kUnitsOfRow, unit = job % kUnitsOfRow;
        U32x4 halves{};
        if (row0 + row < prompt.count && has_slab(first, slab)) {
          const float* from = args.q + Rows::query_at(prompt.t0 + row0 + row, head) + (first + slab) * kSlab + unit * 8;
          FORGE_UNROLL
          for (int j = 0; j < 2; ++j) {
            const auto four = __builtin_bit_cast(F32x4, load16(from + 4 * j));
            halves.at[2 * j] = F16::pair(four.at[0] * kFactor, four.at[1] * kFactor);
            halves.at[2 * j + 1] = F16::pair(four.at[2] * kFactor, four.at[3] * kFactor);
          }
        }
        lds.units.set(place + unit_place(row, unit), halves);
      }
      barrier();
      if constexpr (kAcross)
        fetch_b<T>(lds.units, place, query[slab]);
      else
        fetch_a<T>(lds.units, place, query[slab]);
      barrier();
    }
  }

  /// scores += queries * keys of a chunk, over the wave's columns.
  FORGE_DEVICE static void multiply_keys(const Query& query, const TileLds& lds, Scores& scores) {
    const int first = slab0(), keys = kKeys + first * C::kChunk * kUnitsOfRow;
    FORGE_UNROLL
    for (int slab = 0; slab < kPartSlabs; ++slab) {
      if (!has_slab(first, slab)) continue;
      FORGE_UNROLL
      for (int n = 0; n < kKeyTiles; ++n) {
        const int tile = keys + (slab * C::kChunk + n * T::kN) * kUnitsOfRow;
        U32x4 units[kAcross ? T::kAUnits : T::kBUnits];
        if constexpr (kAcross)
          fetch_a<T>(lds.units, tile, units);
        else
          fetch_b<T>(lds.units, tile, units);
        FORGE_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          if constexpr (kAcross)
            multiply_half<T>(half, units, query[slab], scores[n]);
          else
            multiply_half<T>(half, query[slab], units, scores[n]);
        }
      }
    }
  }
  /// The waves of a head exchange their partial scores: each stores its own, and after a barrier adds up those of all
  /// parts in their order.
  FORGE_DEVICE static void store_scores(const Scores& scores, TileLds& lds) {
    FORGE_UNROLL
    for (int u = 0; u < kScoreUnits; ++u) {
      F32x4 four;
      FORGE_UNROLL
      for (int j = 0; j < 4; ++j) four.at[j] = scores[(u * 4 + j) / T::Fragments::kC][(u * 4 + j) % T::Fragments::kC];
      lds.units.set(kOwn + wave_id() * kOwnUnits + u * kWave + lane_id(), __builtin_bit_cast(U32x4, four));
    }
  }
  FORGE_DEVICE static void add_scores(const TileLds& lds, Scores& scores) {
    const int first = kOwn + wave_id() / kParts * kParts * kOwnUnits + lane_id();
    FORGE_UNROLL
    for (int u = 0; u < kScoreUnits; ++u) {
      F32x4 sum{};
      FORGE_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const auto four = __builtin_bit_cast(F32x4, lds.units.get(first + part * kOwnUnits + u * kWave));
        FORGE_UNROLL
        for (int j = 0; j < 4; ++j) sum.at[j] += four.at[j];
      }
      FORGE_UNROLL
      for (int j = 0; j < 4; ++j) scores[(u * 4 + j) / T::Fragments::kC][(u * 4 + j) % T::Fragments::kC] = sum.at[j];
    }
  }

  /// out += weights * values of the chunk.
  FORGE_DEVICE static void add_values(const TileLds& lds, const Weights& weights, State& state) {
    const int first = slab0();
    FORGE_UNROLL
    for (int slab = 0; slab < kKeySlabs; ++slab) {
      FORGE_UNROLL
      for (int d = 0; d < kOutTiles; ++d) {
        if (!has_values(first, d / kSlabTiles)) continue;
        const int tile = kValues + (slab * kValueDim + first * kSlab + d * T::kN) * kUnitsOfRow;
        U32x4 units[kAcross ? T::kAUnits : T::kBUnits];
        if constexpr (kAcross)
          fetch_a<T>(lds.units, tile, units);
        else
          fetch_b<T>(lds.units, tile, units);
        FORGE_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          u32 words[(kAcross ? T::Fragments::kA : T::Fragments::kB) / 2];
          if constexpr (kAcross) {
            words_of_a<T>(half, units, words);
            multiply_fragments<T>(words, weights[slab * kHalves + half], state.out[d]);
          } else {
            words_of_b<T>(half, units, words);
            multiply_fragments<T>(weights[slab * kHalves + half], words, state.out[d]);
          }
        }
        if (d % 4 == 3) keep_schedule();  // otherwise the compiler hoists the loads of all values and spills
      }
    }
  }

  /// Divides by the sums of weights and writes the wave's rows, 16 dimensions at a time through shared memory, because
  /// quantisation needs 16 neighbouring elements in 16 neighbouring lanes. Rows after the last real one, up to a
  /// multiple of 16, are zeros.
  FORGE_DEVICE static void write(const Args& args, const Prompt& prompt, int head, int row0, TileLds& lds,
                                 State& state) {
    constexpr int kTiles = 16 / T::kN;
    const int lane = lane_id(), place = wave_id() * kRowsOfWave * kOutStride, first = slab0();
    FORGE_UNROLL
    for (int r = 0; r < kQueriesOfLane; ++r) {
      float sum = Tiles::sum_of_query(state.sum[r]);
      if constexpr (C::kSinks) sum += exp2_of(load(args.sinks + head) * Rows::kLog2E - state.maximum[r]);
      state.sum[r] = sum > 0 ? 1.0f / sum : 0.0f;
    }
    const int written = whole_tiles(prompt.count);
    FORGE_UNROLL
    for (int d16 = 0; d16 < kPartDim / 16; ++d16) {
      FORGE_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        FORGE_UNROLL
        for (int i = 0; i < T::Fragments::kC; ++i)
          lds.out.set(place + query_at(i) * kOutStride + n * T::kN + other_at(i),
                      state.out[d16 * kTiles + n][i] * state.sum[own_query(i)]);
      }
      barrier();
      FORGE_UNROLL
      for (int i = 0; i < kRowsOfWave * 16 / kWave; ++i) {
        const int at = i * kWave + lane, row = row0 + at / 16, t = prompt.t0 + row;
        const float value = row < prompt.count ? lds.out.get(place + at / 16 * kOutStride + at % 16) : 0.0f;
        Rows::write(args, t, head * kValueDim + first * kSlab + d16 * 16 + at % 16, value,
                    row < written && t < C::kTokensTotal && has_values(first, d16 * 16 / kSlab));
      }
      barrier();
    }
  }

  /// The main loop over chunks. Loads of the next chunk are in flight while this one is multiplied. With parts, only
  /// keys or values are in flight at a time, as there are no registers for both.
  FORGE_DEVICE static void run_tile(const Args& args, TileLds& lds, const Prompt& prompt, int head0) {
    const int rows = wave_id() / kParts, head = head0 + rows / kWavesOfHead, row0 = rows % kWavesOfHead * kRowsOfWave;
    const int kv_head = head0 / kHeadsOfKv, position = prompt.position + row0;
    const int first = prompt.oldest / C::kChunk, last = prompt.newest / C::kChunk;
    const float slope = C::kAlibi > 0 ? alibi_slope<C>(head) : 0.0f;
    wait_for_producer();
    Next next;
    load_keys(args, prompt, kv_head, first, next);
    if constexpr (kParts == 1) load_values(args, prompt, kv_head, first, next);
    Query query;
    load_query(args, prompt, head, row0, lds, query);
    State state = {};
    FORGE_UNROLL
    for (int r = 0; r < kQueriesOfLane; ++r) state.maximum[r] = Rows::kLowest;
    FORGE_LOOP
    for (int chunk = first; chunk <= last; ++chunk) {
      store_keys(lds, next);
      if constexpr (kParts == 1) store_values(prompt, chunk, lds, next);
      barrier();
      if constexpr (kParts > 1) {
        load_values(args, prompt, kv_head, chunk, next);
      } else if (chunk < last) {
        load_keys(args, prompt, kv_head, chunk + 1, next);
        load_values(args, prompt, kv_head, chunk + 1, next);
      }
      keep_schedule();
      const bool sees = uniform(row0 < prompt.count && chunk * C::kChunk < position + kRowsOfWave);
      Scores scores;
      if constexpr (kParts > 1) {
        Tiles::begin(state, scores);
        if (sees) multiply_keys(query, lds, scores);
        store_scores(scores, lds);
        barrier();  // the keys have been read
        store_values(prompt, chunk, lds, next);
        barrier();  // the values have been stored
        if (chunk < last) load_keys(args, prompt, kv_head, chunk + 1, next);
        keep_schedule();
      }
      if (sees) {
        const auto find_scores = [&] {
          if constexpr (kParts > 1) {
            add_scores(lds, scores);
          } else {
            Tiles::begin(state, scores);
            multiply_keys(query, lds, scores);
          }
          keep_schedule();
          if constexpr (C::kSoftcap > 0) Tiles::cap(state, scores);
          Tiles::mask(scores, chunk, position, slope);
        };
        find_scores();
        if (Tiles::has_new(state)) [[unlikely]]
          Tiles::raise(scores, state);
        Words words;
        if (!Tiles::weigh(scores, words)) [[unlikely]] {  // rare, so it starts anew
          find_scores();
          Tiles::raise(scores, state);
          Tiles::weigh(scores, words);
        }
        Weights weights;
        Tiles::take(scores, words, state, weights);
        add_values(lds, weights, state);
      }
      barrier();
    }
    write(args, prompt, head, row0, lds, state);
  }

  /// The rows of block `id` of kRowBlocks that no tile has. One wave looks for them, as most blocks have none.
  FORGE_DEVICE static void run_rows(const Args& args, Lds& lds, int id) {
    if (wave_id() == 0) {
      u32 found = 0;
      FORGE_LOOP
      for (int turn = 0; turn < C::kRowTurns; ++turn) {
        const int t = (id + turn * kRowBlocks) / Rows::kJobs;
        if (idle_tile(args.counts, kTokenCount, t)) break;
        Prompt prompt{};
        if (!find_prompt(args, t / C::kTileTokens, prompt)) found |= 1u << turn;
      }
      if (lane_id() == 0) lds.found.set(0, found);
    }
    barrier();
    const u32 found = static_cast<u32>(uniform(static_cast<int>(lds.found.get(0))));
    if (found == 0) return;
    barrier();  // the rows' own work takes its place
    FORGE_LOOP
    for (int turn = 0; turn < C::kRowTurns; ++turn) {
      if ((found >> turn & 1) == 0) continue;
      Rows::run_block(args, lds.rows, id + turn * kRowBlocks);
      barrier();
    }
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    const int id = block_id() - kTileBlocks;
    Prompt prompt{};
    if (id >= 0) return run_rows(args, lds, id);
    // Tiles in descending order: the rows with the longest context take longest and should start first.
    const int tile = kTokenTiles - 1 - block_id() / kJobs;
    if (find_prompt(args, tile, prompt)) run_tile(args, lds.tile, prompt, block_id() % kJobs * C::kTileHeads);
  }
};

}  // namespace forge::gpu
