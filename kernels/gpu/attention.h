#pragma once
// Attention for decode (and for prefill without matrix instructions) over the paged KV pool, in any of its formats
// (kv_pool.h). Rows are ragged: each row t has its own sequence and position. A block computes some query heads of one
// KV head for one row.
//
// Work split. The context is cut into chunks of kChunk tokens, which the waves of a block take in turn. Within a wave,
// a team of lanes shares a token: each lane holds a unit (16 bytes, 8 dimensions, in f16) of its keys and values, or,
// where a head has more units than a wave has lanes, every kTeamLanes-th unit.
//
//   f16, head_dim 128, wave of 32: 2 teams of 16 lanes, kTokens = 8 tokens per team, kChunk = 16
//
//   lane          0          1          ...  15             16         17         ...  31
//   dimensions    0..7       8..15           120..127       0..7       8..15           120..127
//   tokens        chunk * 16 + 0, 2, 4, ..., 14             chunk * 16 + 1, 3, 5, ..., 15
//   with scales   chunk * 16 + 0, 1, 2, ..., 7              chunk * 16 + 8, 9, ..., 15
//
// Each lane multiplies its dimensions of the query with its keys; sum_parts adds the products over the team and leaves
// each token's score in kSpread = 2 lanes; then every lane adds the weighted values of its dimensions.
//
// Online softmax (Milakov and Gimelshein, arXiv 1805.02867; Dao, arXiv 2205.14135), in base 2. For each chunk:
//
//   maximum' = max(maximum, scores)             keep = 2^(maximum - maximum')        weight = 2^(score - maximum')
//   sum'     = sum * keep + weights             values' = values * keep + weights * chunk's values
//
// Waves share nothing until all chunks are done; then maxima, sums and values are merged in the order of the waves.
//
// Sparse attention: the context is the list of selected_keys.h. The split over blocks is that of attention_row.h.

#include "kernels/gpu/attention_row.h"

namespace forge::gpu {

template <class C>
struct Attention : AttentionRow<C> {
  using Row = AttentionRow<C>;
  using Row::kGroup, Row::kHeadDim, Row::kLog2E, Row::kLowest, Row::kSparse, Row::kUnit, Row::kValueDim, Row::row_of,
      Row::score_of;
  using typename Row::Args, typename Row::Format, typename Row::Job, typename Row::Lds, typename Row::Pool,
      typename Row::Share;
  static constexpr int kUnits = kHeadDim / kUnit, kValueUnits = kValueDim / kUnit;  ///< units in a row of K or V
  /// Lanes that share a token.
  static constexpr int kTeamLanes = power_of_two_from(kUnits < kWave ? kUnits : kWave);
  static constexpr int kOwn = ceil_div(kUnits, kTeamLanes);  ///< units of a lane
  static constexpr int kTeams = kWave / kTeamLanes;
  static constexpr int kTokens = C::kTeamTokens < kTeamLanes ? C::kTeamTokens : kTeamLanes;  ///< of a team, per chunk
  static constexpr int kSpread = kTeamLanes / kTokens;             ///< lanes that hold the same token's score
  static constexpr int kChunk = kTeams * kTokens;                  ///< tokens of a chunk
  static constexpr int kStep = Format::kScaled ? 1 : kTeams;       ///< from one token of a team to the next
  static constexpr int kTeamStep = Format::kScaled ? kTokens : 1;  ///< from a team's first token to the next team's
  static_assert(kTeamLanes <= kWave && is_power_of_two(kTokens),
                "a team must fit into a wave, and its tokens must be a power of two");
  static_assert(!Format::kScaled || Pool::kBlockTokens % kTokens == 0, "a team's tokens lie in one block of the pool");

  /// A lane's part of its wave's online softmax.
  struct State {
    typename Format::Sums values[kGroup][kOwn];  ///< weighted values of the team's tokens, the lane's units
    float maximum[kGroup];                       ///< of all scores of the wave so far; the same in all lanes
    float sum[kGroup];                           ///< sum of the weights of the token whose score the lane holds
  };
  using Loaded = typename Format::template Loaded<kTokens, kOwn>;
  using Query = typename Format::Query[kGroup][kOwn];
  /// A lane's part of a chunk: its units of the keys and values of its team's tokens.
  struct Chunk {
    Loaded keys, values;
  };
  /// The lane's number in its team, which is the first unit that it holds (Units or more: none).
  FORGE_DEVICE static int unit() { return lane_id() % kTeamLanes; }
  FORGE_DEVICE static int team() { return lane_id() / kTeamLanes; }
  /// True if the lane has an own-th unit of a row of Units.
  template <int Units = kUnits>
  FORGE_DEVICE static bool has_unit(int own) {
    return (own + 1) * kTeamLanes <= Units || unit() + own * kTeamLanes < Units;
  }
  /// Position of the i-th token that the lane's team has of a chunk.
  FORGE_DEVICE static int token_of(int chunk, int i) { return chunk * kChunk + i * kStep + team() * kTeamStep; }
  /// Where a lane's part of a chunk is. The lane loads the team's tokens token0 + from .. token0 + to.
  struct Place {
    int token0, from, to;
    u64 row;  ///< of token0, if kOneRow
    [[nodiscard]] FORGE_DEVICE bool sees_any() const { return from <= (kTokens - 1) * kStep && to >= 0 && from <= to; }
  };
  /// A chunk lies within one block of the pool, so that one look-up in the block table gives all its rows.
  static constexpr bool kOneBlock = Pool::kBlockTokens % kChunk == 0 && (!kSparse || C::kSelectedBlock % kChunk == 0);
  static constexpr bool kOneRow = kOneBlock || Format::kScaled;  ///< the same of a team's tokens
  /// Restricts a chunk to the seen tokens up to `newest` (the row's own position, or older).
  FORGE_DEVICE static Place place_of(const Job& job, int chunk, int newest) {
    const int token0 = token_of(chunk, 0);
    Place place{token0, job.oldest - token0, (has_unit(0) ? newest : -1) - token0, 0};
    if constexpr (kOneBlock)
      place.row = row_of(job, chunk * kChunk) + team() * kTeamStep;
    else if (kOneRow && place.sees_any())
      place.row = row_of(job, token0);
    return place;
  }
  /// Loads the lane's units of keys or values, rows of Dim elements; zeros for tokens that are not seen, whose blocks
  /// may belong to another sequence by now. Their scales are not zeros.
  template <int Dim>
  FORGE_DEVICE static void load_units(const u16* pool, const Job& job, const Place& place, Loaded& out) {
    using Rows = typename Pool::template Rows<Dim>;
    const u8* first = Rows::at(pool, place.row, unit());
    FORGE_UNROLL
    for (int i = 0; i < kTokens; ++i) {
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own) out.units[i][own] = {};
      if (i * kStep < place.from || i * kStep > place.to) continue;
      const u64 row = kOneRow ? static_cast<u64>(i) * kStep : row_of(job, place.token0 + i * kStep);
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own)
        if (has_unit<Dim / kUnit>(own))
          load_packed(first + row * Rows::kRowBytes + own * kTeamLanes * Format::kUnitBytes, out.units[i][own]);
    }
    if constexpr (Format::kScaled) {
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own)
        if (place.sees_any() && has_unit<Dim / kUnit>(own))
          out.template load_scales<Rows>(pool, place.row, unit() + own * kTeamLanes, own);
    }
  }
  FORGE_DEVICE static void load_chunk(const Args& args, const Job& job, int chunk, int newest, Chunk& out) {
    const Place place = place_of(job, chunk, newest);
    load_units<kHeadDim>(args.k, job, place, out.keys);
    load_units<kValueDim>(args.v, job, place, out.values);
  }
  /// Loads only the row's own token, the team's i-th, whose row in the pools is `own`.
  template <int Dim>
  FORGE_DEVICE static void load_one(const u16* pool, u64 own, int i, Loaded& out) {
    using Rows = typename Pool::template Rows<Dim>;
    FORGE_UNROLL
    for (int n = 0; n < kOwn; ++n) {
      const int at = unit() + n * kTeamLanes;
      if (!has_unit<Dim / kUnit>(n)) continue;
      load_packed(Rows::at(pool, own, at), out.units[i][n]);
      if constexpr (Format::kScaled) out.template load_scale<Rows>(pool, own, at, i, n);
    }
  }
  FORGE_DEVICE static void load_own(const Args& args, const Job& job, int chunk, u64 own, Chunk& out) {
    FORGE_UNROLL
    for (int i = 0; i < kTokens; ++i) {
      if (token_of(chunk, i) != job.position) continue;
      load_one<kHeadDim>(args.k, own, i, out.keys);
      load_one<kValueDim>(args.v, own, i, out.values);
    }
  }
  template <class Queries>
  FORGE_DEVICE static void load_query(const Queries& queries, const Job& job, Query& query) {
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own) {
        float x[kUnit];
        FORGE_UNROLL
        for (int quad = 0; quad < kUnit / 4; ++quad) {
          const int dim = (unit() + own * kTeamLanes) * kUnit + quad * 4;
          const F32x4 four = has_unit(own) ? queries.four(job, h, dim) : F32x4{};
          FORGE_UNROLL
          for (int j = 0; j < 4; ++j) x[quad * 4 + j] = four.at[j];
        }
        query[h][own] = Format::query_of(x);
      }
    }
  }

  /// Makes the scales of unseen tokens zeros: a weight of 0 does not cancel NaN. Most chunks have no such token.
  FORGE_DEVICE static void clear_scales(const Job& job, int chunk, Loaded& values) {
    if (chunk * kChunk >= job.oldest && chunk * kChunk + kChunk - 1 <= job.newest) return;
    FORGE_UNROLL
    for (int i = 0; i < kTokens; ++i) {
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own)
        if (!job.seen(token_of(chunk, i))) values.set_scale(i, own, 0);
    }
  }

  /// Adds one chunk to the wave's online softmax. The chunk `next` (-1: none) is loaded into the registers that become
  /// free: its keys once this chunk's keys are multiplied, its values at the end.
  FORGE_DEVICE static void add_chunk(const Args& args, const Job& job, const Query& query, int chunk, int next,
                                     Chunk& loaded, State& state) {
    const bool is_seen = job.seen(token_of(chunk, unit() / kSpread));
    float parts[kGroup][kTokens], weights[kGroup];
    FORGE_UNROLL
    for (int i = 0; i < kTokens; ++i) {
      FORGE_UNROLL
      for (int h = 0; h < kGroup; ++h) parts[h][i] = 0;
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own) {
        const auto key = loaded.keys.open(i, own);
        FORGE_UNROLL
        for (int h = 0; h < kGroup; ++h) parts[h][i] = Format::add_product(query[h][own], key, parts[h][i]);
      }
    }
    Place place = {};
    if (next >= 0) {
      place = place_of(job, next, job.newest);
      load_units<kHeadDim>(args.k, job, place, loaded.keys);
    }
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      const float dot = sum_parts<kTeamLanes, kTokens>(parts[h]);
      weights[h] = is_seen ? score_of(dot) : kLowest;
      if constexpr (C::kAlibi > 0)
        weights[h] -=
            alibi_slope<C>(job.head0 + h) * static_cast<float>(job.position - token_of(chunk, unit() / kSpread));
      const float maximum = max_of(state.maximum[h], max_lanes<kWave>(weights[h]));
      const float keep = exp2_of(state.maximum[h] - maximum);
      state.maximum[h] = maximum;
      weights[h] = is_seen ? exp2_of(weights[h] - maximum) : 0.0f;
      state.sum[h] = fma_of(state.sum[h], keep, weights[h]);
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own) Format::scale(state.values[h][own], keep);
    }
    if constexpr (Format::kScaled) clear_scales(job, chunk, loaded.values);
    FORGE_UNROLL
    for (int i = 0; i < kTokens; ++i) {
      float weight[kGroup];
      FORGE_UNROLL
      for (int h = 0; h < kGroup; ++h) weight[h] = shuffle(weights[h], team() * kTeamLanes + i * kSpread);
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own) {
        const auto value = loaded.values.open(i, own);
        FORGE_UNROLL
        for (int h = 0; h < kGroup; ++h) Format::add_weighted(weight[h], value, state.values[h][own]);
      }
    }
    if (next >= 0) load_units<kValueDim>(args.v, job, place, loaded.values);
  }

  /// Writes the wave's values, maximum and sum of weights to shared memory. Ends with a barrier. The kSpread lanes that
  /// hold the same token are counted once.
  FORGE_DEVICE static void share_state(const State& state, Lds& lds) {
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      const float sum = sum_lanes<kWave>(lane_id() % kSpread == 0 ? state.sum[h] : 0.0f);
      if (lane_id() == 0) {
        lds.sums.set(h * C::kWaves + wave_id(), sum);
        lds.maxima.set(h * C::kWaves + wave_id(), state.maximum[h]);
      }
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own) {
        F32x4 quads[kUnit / 4];
        const auto sums = Format::finished(state.values[h][own]);
        FORGE_UNROLL
        for (int j = 0; j < kUnit; ++j) quads[j / 4].at[j % 4] = sum_teams<kTeamLanes>(sums.at[j]);
        const int at = lane_id() + own * kTeamLanes;
        if (lane_id() >= kTeamLanes || at >= kValueUnits) continue;
        FORGE_UNROLL
        for (int i = 0; i < kUnit / 4; ++i)
          lds.values.set(((wave_id() * kGroup + h) * kValueDim) / 4 + at * (kUnit / 4) + i, quads[i]);
      }
    }
    barrier();
  }
  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    run_block(args, lds, block_id());
  }
  /// Runs block `id` of kBlocks: [rows][kJobs][kWorkers].
  FORGE_DEVICE static void run_block(const Args& args, Lds& lds, int id) {
    run_block(args, lds, id, typename Row::StoredQueries{args});
  }
  /// The same with another source of queries.
  template <class Queries>
  FORGE_DEVICE static void run_block(const Args& args, Lds& lds, int id, const Queries& queries) {
    const int t = Row::row_of_block(id);
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    Job job = Row::job_of(args, t, Row::part_of(id));
    if constexpr (kSparse) {
      wait_for_producer();
      Row::find_keys(args, job);
    }
    Share share;
    if (!Row::template find_share<kChunk>(job, id, share)) return;
    const int first = share.first, end = share.end, stride = share.stride;

    // With one row in the step, all keys and values except its own were written by earlier steps, so the first chunk is
    // loaded before the producer (which writes the row's own key and value) has ended; that token is loaded afterwards.
    // Scales of 16 tokens share a sector (kLoadsEarly), so with those a chunk must be whole sectors.
    constexpr bool kWholeSectors = !Format::kScaled || kChunk * 2 % Row::kSectorBytes == 0;
    constexpr bool kOldOnes = Row::kLoadsEarly && kWholeSectors && !kSparse;
    Chunk loaded = {};
    u64 own = 0;
    if (kOldOnes && first < end) {
      own = row_of(job, job.position);
      load_chunk(args, job, first, job.position - 1, loaded);
    }
    if constexpr (!kSparse) queries.make(job, Row::template sees_own<kChunk>(job, share));
    Query query;
    load_query(queries, job, query);
    queries.done();
    if (first < end) {
      if constexpr (!kOldOnes)
        load_chunk(args, job, first, job.newest, loaded);
      else if (first == job.position / kChunk)
        load_own(args, job, first, own, loaded);
    }
    State state = {};
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) state.maximum[h] = kLowest;
    FORGE_LOOP
    for (int chunk = first; chunk < end; chunk += stride)
      add_chunk(args, job, query, chunk, chunk + stride < end ? chunk + stride : -1, loaded, state);
    share_state(state, lds);
    Row::finish(args, job, share, lds);
  }
};

}  // namespace forge::gpu
