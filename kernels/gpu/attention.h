#pragma once
// Attention for decode (and for prefill without matrix instructions) over the paged KV pool, in any of its formats
// (kv_pool.h). Rows are ragged: each row t has its own sequence and position. A block computes some query heads of one
// KV head for one row.
//
// Work split. The context is cut into chunks of kChunk tokens, which the waves of a block take in turn. Within a wave,
// a team of lanes shares a token: each lane holds a unit of 16 bytes (8 dimensions in f16) of its keys and values, or,
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
// Long contexts are split over up to kWorkers blocks ("workers"): they take chunks round-robin, write partial results
// to scratch, and the last to finish merges all of them in the order of the workers (last_arrival). A worker gets at
// least kTokensPerWorker tokens, so short contexts need no merge. The grid's size is constant, and the result depends
// on the position only, not on which block is last. Sparse attention: the context is the list of selected_keys.h.

#include "kernels/gpu/alibi.h"
#include "kernels/gpu/attention_defaults.h"
#include "kernels/gpu/selected_keys.h"
#include "kernels/gpu/team_sum.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

template <class C>
struct Attention {
  using Pool = typename C::Pool;
  using Format = typename Pool::Format;
  static constexpr int kHeadDim = Pool::kHeadDim, kKvHeads = Pool::kKvHeads;
  static constexpr int kValueDim = C::kValueDim > 0 ? C::kValueDim : kHeadDim;
  static constexpr bool kShared = false;  ///< values are the first columns of keys
  static constexpr int kGroup = C::kHeadsPerBlock > 0 ? C::kHeadsPerBlock : C::kHeads / kKvHeads;
  static_assert(C::kHeads % kKvHeads == 0 && C::kHeads / kKvHeads % kGroup == 0,
                "kGroup must divide the query heads of a KV head");
  static constexpr int kUnit = Format::kUnit;
  static_assert(kHeadDim % Format::kColumns == 0 && kHeadDim <= 512, "head_dim: whole units or blocks, at most 512");
  static_assert(kValueDim % Format::kColumns == 0 && kValueDim <= kHeadDim, "kValueDim: the same, at most head_dim");
  static constexpr bool kSparse = C::kSelected > 0;
  static_assert(!kSparse || (C::kWindow == 0 && C::kChunkedTo == 0 && C::kAlibi == 0 && !Format::kScaled),
                "sparse attention has no window, chunks, ALiBi or scales");

  /// The smallest power of two that is at least `units`.
  FORGE_DEVICE static constexpr int lanes_of(int units) { return units <= 1 ? 1 : 2 * lanes_of((units + 1) / 2); }
  static constexpr int kUnits = kHeadDim / kUnit, kValueUnits = kValueDim / kUnit;  ///< units in a row of K or V
  static constexpr int kThreads = C::kWaves * kWave;
  static constexpr int kTeamLanes = lanes_of(kUnits) < kWave ? lanes_of(kUnits) : kWave;  ///< lanes that share a token
  static constexpr int kOwn = ceil_div(kUnits, kTeamLanes);                               ///< units of a lane
  static constexpr int kTeams = kWave / kTeamLanes;
  static constexpr int kTokens = C::kTeamTokens < kTeamLanes ? C::kTeamTokens : kTeamLanes;  ///< of a team, per chunk
  static constexpr int kSpread = kTeamLanes / kTokens;             ///< lanes that hold the same token's score
  static constexpr int kChunk = kTeams * kTokens;                  ///< tokens of a chunk
  static constexpr int kStep = Format::kScaled ? 1 : kTeams;       ///< from one token of a team to the next
  static constexpr int kTeamStep = Format::kScaled ? kTokens : 1;  ///< from a team's first token to the next team's
  static constexpr int kChunksPerWorker = at_least_one(C::kTokensPerWorker / kChunk);
  static constexpr int kJobs = C::kHeads / kGroup;  ///< blocks of a row, per worker
  static constexpr int kBlocks = C::kTokensTotal * kJobs * C::kWorkers;
  static constexpr int kPartial = kValueDim + 2;  ///< floats of a partial result of a head: values, maximum, sum
  static constexpr int kColumns = C::kHeads * kValueDim;
  static constexpr float kLowest = -1e30f, kLog2E = 1.44269504088896f;
  static_assert(kTeamLanes <= kWave && is_power_of_two(kTokens),
                "a team must fit into a wave, and its tokens must be a power of two");
  static_assert(!Format::kScaled || Pool::kBlockTokens % kTokens == 0, "a team's tokens lie in one block of the pool");

  struct Lds {
    Shared<F32x4, C::kWaves * kGroup * kValueDim / 4> values;  ///< [waves][kGroup][kValueDim]
    Shared<float, C::kWaves * kGroup> maxima, sums;            ///< [kGroup][waves]
    Shared<u32, 1> flag;
  };
  /// A row with position -1 is padding: its output is zeros. K and V of all positions up to the row's own must be in
  /// the pools already.
  struct Args {
    const float* q;        ///< [rows][kHeads][kHeadDim]
    const u16 *k, *v;      ///< the layer's pools
    const i32* positions;  ///< [rows]
    const i32* sequences;  ///< [rows]
    const i32* tables;     ///< [sequences][kTableBlocks]
    const i32* counts;
    float* scratch;       ///< [rows][kJobs][kWorkers][kGroup][kPartial]; unused with one worker
    u32* counters;        ///< [rows][kJobs], zero before the first use and afterwards; unused with one worker
    float* out;           ///< [rows][kColumns]; written if kStored
    u8* rows;             ///< rows of activations in that format
    const float* sinks;   ///< [kHeads]; read only if kSinks
    const i32* selected;  ///< [rows][kSelectedLists][kSelected]; read only if kSelected > 0
  };
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
  /// The block's part: query heads head0 .. head0+kGroup-1 of row t. It sees tokens oldest .. newest, which are its
  /// positions up to its own, or with kSparse those of `keys`. table: the block table of its sequence.
  struct Job {
    int t, position, kv_head, head0, oldest, newest;
    const i32* table;
    SelectedKeys<at_least_one(C::kSelected), C::kSelectedBlock> keys;
    [[nodiscard]] FORGE_DEVICE bool seen(int token) const { return token >= oldest && token <= newest; }
  };

  /// The score in units of log2(e), so that the softmax can use 2^x.
  FORGE_DEVICE static float score_of(float dot) {
    const float score = dot * C::kScale;
    if constexpr (C::kSoftcap > 0) {
      return softcap(score, C::kSoftcap) * kLog2E;
    } else {
      return score * kLog2E;
    }
  }

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
  /// The number of a token's row in the pools.
  FORGE_DEVICE static u64 row_of(const Job& job, int token) {
    if constexpr (kSparse) token = job.keys.position_of(token);
    const int slot = load(job.table + token / Pool::kBlockTokens) * Pool::kBlockTokens + token % Pool::kBlockTokens;
    return Pool::row(slot, job.kv_head);
  }

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
      for (int own = 0; own < kOwn; ++own) out.units[i][own] = U32x4{};
      if (i * kStep < place.from || i * kStep > place.to) continue;
      const u64 row = kOneRow ? static_cast<u64>(i) * kStep : row_of(job, place.token0 + i * kStep);
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own)
        if (has_unit<Dim / kUnit>(own))
          out.units[i][own] = load16(first + row * Rows::kRowBytes + own * kTeamLanes * 16);
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
      out.units[i][n] = load16(Rows::at(pool, own, at));
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
  /// Index of a head's query, in floats.
  FORGE_DEVICE static u64 query_at(int t, int head) {
    if constexpr (C::kQueryFloats > 0) return static_cast<u64>(t) * C::kQueryFloats + head * kHeadDim;
    return (static_cast<u64>(t) * C::kHeads + head) * kHeadDim;
  }

  FORGE_DEVICE static void load_query(const float* q, const Job& job, Query& query) {
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      const float* from = q + query_at(job.t, job.head0 + h) + unit() * kUnit;
      FORGE_UNROLL
      for (int own = 0; own < kOwn; ++own) {
        float x[kUnit];
        FORGE_UNROLL
        for (int quad = 0; quad < kUnit / 4; ++quad) {
          const float* at = from + own * kTeamLanes * kUnit + quad * 4;
          const auto four = has_unit(own) ? __builtin_bit_cast(F32x4, load16(at)) : F32x4{};
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
  FORGE_DEVICE static void share(const State& state, Lds& lds) {
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
  /// The waves' results of a head, merged: maximum, sum of weights, and the weighted value of one dimension.
  struct Merged {
    float maximum, sum, value;
  };
  FORGE_DEVICE static Merged merged(const Lds& lds, int h, int dim) {
    Merged out{kLowest, 0, 0};
    FORGE_UNROLL
    for (int wave = 0; wave < C::kWaves; ++wave)
      out.maximum = max_of(out.maximum, lds.maxima.get(h * C::kWaves + wave));
    FORGE_UNROLL
    for (int wave = 0; wave < C::kWaves; ++wave) {
      const float weight = exp2_of(lds.maxima.get(h * C::kWaves + wave) - out.maximum);
      out.sum = fma_of(lds.sums.get(h * C::kWaves + wave), weight, out.sum);
      out.value = fma_of(lds.values.scalar((wave * kGroup + h) * kValueDim + dim), weight, out.value);
    }
    return out;
  }

  /// Writes the worker's partial result: [kGroup][kPartial].
  FORGE_DEVICE static void write_partial(const Lds& lds, float* partial) {
    for (int i = thread_id(); i < kGroup * kValueDim; i += kThreads) {
      const int h = i / kValueDim, dim = i % kValueDim;
      const Merged all = merged(lds, h, dim);
      partial[h * kPartial + dim] = all.value;
      if (dim != 0) continue;
      partial[h * kPartial + kValueDim] = all.maximum;
      partial[h * kPartial + kValueDim + 1] = all.sum;
    }
  }

  /// The output: weighted value / sum of weights (plus the sink's weight); 0 if the row saw no token.
  FORGE_DEVICE static float divided(const Args& args, const Job& job, int h, const Merged& all) {
    float sum = all.sum;
    if constexpr (C::kSinks) sum += exp2_of(load(args.sinks + job.head0 + h) * kLog2E - all.maximum);
    return sum > 0 ? all.value / sum : 0.0f;
  }

  /// Writes a column of row t of the output. 16 neighbouring lanes make 16 neighbouring columns, which are one
  /// quantised block.
  FORGE_DEVICE static void write(const Args& args, int t, int column, float value, bool real) {
    if constexpr (C::kStored) store(args.out + static_cast<u64>(t) * kColumns + column, value, real);
    if constexpr (C::kFormat > 0) store_activation<kColumns, C::kFormat>(args.rows, t, column, value, real);
  }
  /// Writes the whole job; each(h, dim) computes an element.
  template <class Each>
  FORGE_DEVICE static void write_row(const Args& args, const Job& job, Each&& each) {
    constexpr int kCount = kGroup * kValueDim, kTurns = ceil_div(kCount, kThreads);
    FORGE_UNROLL
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = turn * kThreads + thread_id();
      const bool real = i < kCount;
      const float value = each(real ? i / kValueDim : 0, real ? i % kValueDim : 0);
      write(args, job.t, job.head0 * kValueDim + i, value, real);
    }
  }
  /// Writes the output of the only worker.
  FORGE_DEVICE static void write_single(const Args& args, const Job& job, const Lds& lds) {
    write_row(args, job, [&](int h, int dim) { return divided(args, job, h, merged(lds, h, dim)); });
  }
  /// Merges the partial results of the first `count` workers in their order and writes the output. All loads are issued
  /// before the first is used; to avoid a branch, missing workers load worker 0's result with weight 0.
  FORGE_DEVICE static void write_combined(const Args& args, const Job& job, const float* partials, int count) {
    write_row(args, job, [&](int h, int dim) {
      float values[C::kWorkers], maxima[C::kWorkers], sums[C::kWorkers];
      FORGE_UNROLL
      for (int w = 0; w < C::kWorkers; ++w) {
        const float* from = partials + ((w < count ? w : 0) * kGroup + h) * kPartial;
        values[w] = load_fresh(from + dim);
        maxima[w] = load_fresh(from + kValueDim);
        sums[w] = load_fresh(from + kValueDim + 1);
      }
      float maximum = kLowest, sum = 0, value = 0;
      FORGE_UNROLL
      for (int w = 0; w < C::kWorkers; ++w) maximum = max_of(maximum, maxima[w]);
      FORGE_UNROLL
      for (int w = 0; w < C::kWorkers; ++w) {
        const float weight = w < count ? exp2_of(maxima[w] - maximum) : 0.0f;
        sum = fma_of(sums[w], weight, sum);
        value = fma_of(values[w], weight, value);
      }
      return divided(args, job, h, {maximum, sum, value});
    });
  }

  /// The first position that a row at `position` sees.
  FORGE_DEVICE static int oldest_of(int position) {
    int oldest = C::kWindow > 0 && position >= C::kWindow ? position - C::kWindow + 1 : 0;
    if constexpr (C::kChunkedTo > 0) {
      const int begin = position > 0 ? position / C::kChunkedTo * C::kChunkedTo : 0;
      if (begin > oldest) oldest = begin;
    }
    return oldest;
  }
  /// The job of part `part` of row t. Reads the step's inputs only, so it need not wait for the producer.
  FORGE_DEVICE static Job job_of(const Args& args, int t, int part) {
    const int position = uniform(load(args.positions + t)), head0 = part * kGroup;
    const int sequence = position < 0 ? 0 : load(args.sequences + t);
    return {t,
            position,
            head0 / (C::kHeads / kKvHeads),
            head0,
            oldest_of(position),
            position,
            args.tables + static_cast<u64>(sequence) * C::kTableBlocks,
            {}};
  }
  /// Gives the job its list of selected positions, which an earlier kernel of the step has written.
  FORGE_DEVICE static void find_keys(const Args& args, Job& job) {
    const int list = job.t * C::kSelectedLists + (C::kSelectedLists > 1 ? job.kv_head : 0);
    job.keys = {args.selected + static_cast<u64>(list) * C::kSelected};
    job.newest = uniform(job.keys.tokens(job.position)) - 1;
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    run_block(args, lds, block_id());
  }
  /// Runs block `id` of kBlocks: [rows][kJobs][kWorkers].
  FORGE_DEVICE static void run_block(const Args& args, Lds& lds, int id) {
    const int t = id / (kJobs * C::kWorkers), part = id % (kJobs * C::kWorkers) / C::kWorkers;
    const int worker = id % C::kWorkers;
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    Job job = job_of(args, t, part);
    if constexpr (kSparse) {
      wait_for_producer();
      find_keys(args, job);
    }
    const int oldest = job.oldest / kChunk, end = job.newest < 0 ? oldest : job.newest / kChunk + 1;
    const int wanted = ceil_div(end - oldest, kChunksPerWorker);
    const int workers = wanted < 1 ? 1 : wanted < C::kWorkers ? wanted : C::kWorkers;
    if (worker >= workers) return;
    const int first = oldest + worker + workers * wave_id(), stride = workers * C::kWaves;

    // With one row in the step, all keys and values except its own were written by earlier steps, so the first chunk is
    // loaded before the producer (which writes the row's own key and value) has ended; that token is loaded afterwards.
    constexpr bool kOldOnes = C::kTokensTotal == 1 && !kSparse;
    Chunk loaded = {};
    u64 own = 0;
    if (kOldOnes && first < end) {
      own = row_of(job, job.position);
      load_chunk(args, job, first, job.position - 1, loaded);
    }
    if constexpr (!kSparse) wait_for_producer();
    Query query;
    load_query(args.q, job, query);
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
    share(state, lds);
    if (C::kWorkers > 1 && workers > 1) {
      float* partials = args.scratch + (static_cast<u64>(t) * kJobs + part) * C::kWorkers * kGroup * kPartial;
      write_partial(lds, partials + static_cast<u64>(worker) * kGroup * kPartial);
      if (!last_arrival(args.counters + t * kJobs + part, static_cast<u32>(workers), lds.flag)) return;
      write_combined(args, job, partials, workers);
    } else {
      write_single(args, job, lds);
    }
  }
};

}  // namespace forge::gpu
