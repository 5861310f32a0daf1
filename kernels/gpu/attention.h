#pragma once
// Attention over the paged f16 KV pool, ragged: each row t has its own sequence and position. A block serves some heads
// of one KV head for one row, and takes the context a chunk at a time: first each lane (or a few) multiplies the
// queries with the keys of one token, then teams of lanes add up the values of a few tokens each, weighted. The softmax
// is kept online from chunk to chunk, in base 2: Milakov and Gimelshein, arXiv 1805.02867; Dao, arXiv 2205.14135. Long
// contexts are shared by up to kWorkers blocks: worker g takes chunks g, g + workers, ..., and the last of them to
// finish combines what all have left, in the workers' order. A worker has kChunksPerWorker chunks at least, so that
// short contexts need no combining. The grid never grows with the context, and the result depends on the position
// alone, not on who is last.

#include "kernels/gpu/formats.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// A configuration derives from this and names Pool (KvPool), kHeads, kTableBlocks and kScale.
struct AttentionDefaults {
  static constexpr int kTokensTotal = 1;
  static constexpr int kWorkers = 8;          ///< blocks that may share a row
  static constexpr int kChunksPerWorker = 1;  ///< at least, before another worker joins
  static constexpr int kWaves = 8;            ///< a block
  static constexpr int kUnitsPerLane = 8;     ///< of 16 bytes of a token's keys, at most
  static constexpr int kHeadsPerBlock = 0;    ///< 0: all the heads of a KV head
  static constexpr int kWindow = 0;           ///< tokens that a row sees, itself included; 0: all
  static constexpr float kSoftcap = 0;        ///< scores become cap * tanh(score / cap); 0: they do not
  static constexpr bool kStored = true;       ///< out is written in f32
  static constexpr bool kQuantised = false;   ///< out is written as quantised activations
};

template <class C>
struct Attention {
  using Pool = typename C::Pool;
  static constexpr int kHeadDim = Pool::kHeadDim, kKvHeads = Pool::kKvHeads;
  static constexpr int kGroup = C::kHeadsPerBlock > 0 ? C::kHeadsPerBlock : C::kHeads / kKvHeads;
  static_assert(C::kHeads % kKvHeads == 0 && C::kHeads / kKvHeads % kGroup == 0, "blocks serve heads of one KV head");
  static_assert(kHeadDim % 8 == 0 && kHeadDim <= 256, "head_dim: a multiple of 8, at most 256");

  FORGE_DEVICE static constexpr int lanes_of(int units) { return units <= 1 ? 1 : 2 * lanes_of((units + 1) / 2); }
  static constexpr int kUnits = kHeadDim / 8;  ///< loads of 16 bytes that a row of K or V takes
  static constexpr int kThreads = C::kWaves * kWave;
  static constexpr int kKeyLanes = lanes_of(ceil_div(kUnits, C::kUnitsPerLane));  ///< lanes that share a token's keys
  static constexpr int kKeyUnits = ceil_div(kUnits, kKeyLanes);  ///< units of each of them, every kKeyLanes-th
  static constexpr int kChunk = kThreads / kKeyLanes;            ///< tokens
  static constexpr int kTeamLanes = lanes_of(kUnits);            ///< lanes that share a token's values
  static constexpr int kTeams = kThreads / kTeamLanes;
  static constexpr int kTeamTokens = kChunk / kTeams;  ///< of a chunk, every kTeams-th
  static constexpr int kJobs = C::kHeads / kGroup;     ///< blocks a row, but for the workers
  static constexpr int kBlocks = C::kTokensTotal * kJobs * C::kWorkers;
  static constexpr int kPartial = kHeadDim + 2;  ///< floats a head leaves: values, maximum, sum
  static constexpr int kColumns = C::kHeads * kHeadDim;
  static constexpr float kLowest = -1e30f, kLog2E = 1.44269504088896f;

  struct Lds {
    Shared<F32x4, kGroup * kHeadDim / 4> query;
    Shared<float, kGroup * kChunk> weights;  ///< of a chunk's tokens
    Shared<float, kGroup * C::kWaves> maxima, sums;
    Shared<F32x4, kTeams * kGroup * kHeadDim / 4> values;  ///< of the teams
    Shared<float, C::kWorkers * kGroup> worker_maxima, worker_sums;
    Shared<u32, 1> flag;
  };
  /// A row with position -1 is padding: its output is zeros. K and V of positions up to the row's own are written.
  struct Args {
    const float* q;        ///< [rows][kHeads][kHeadDim]
    const u16 *k, *v;      ///< the layer's pools
    const i32* positions;  ///< [rows]
    const i32* sequences;  ///< [rows]
    const i32* tables;     ///< [sequences][kTableBlocks]
    const i32* counts;
    float* scratch;  ///< [rows][kJobs][kWorkers][kGroup][kPartial]; unused with one worker
    u32* counters;   ///< [rows][kJobs], zero before the first use and afterwards; unused with one worker
    float* out;      ///< [rows][kColumns]
    u8* rows;        ///< [rows] of Q8Rows<kColumns>
  };
  using Part = Elements<F16>;  // 8 of a head's dimensions
  struct State {
    Part values[kGroup];    ///< the team's weighted values
    float maximum[kGroup];  ///< of all scores so far, the same in all lanes of the block
    float sum[kGroup];      ///< of the lane's weights
  };
  /// What a lane has of a chunk: keys of its token, values of its team's tokens.
  struct Chunk {
    U32x4 keys[kKeyUnits], values[kTeamTokens];
    FORGE_DEVICE void keys_clear() {
      FORGE_UNROLL
      for (int i = 0; i < kKeyUnits; ++i) keys[i] = U32x4{};
    }
    FORGE_DEVICE void values_clear() {
      FORGE_UNROLL
      for (int i = 0; i < kTeamTokens; ++i) values[i] = U32x4{};
    }
  };
  struct Job {
    int t, position, kv_head, head0, oldest;
    const i32* table;
    [[nodiscard]] FORGE_DEVICE bool seen(int token) const { return token >= oldest && token <= position; }
  };

  FORGE_DEVICE static float score_of(float dot) {
    const float score = dot * C::kScale;
    if constexpr (C::kSoftcap > 0) {
      const float power = exp2_of(2.0f * kLog2E / C::kSoftcap * score);  // tanh(x) = 1 - 2/(e^2x + 1)
      return (C::kSoftcap - 2.0f * C::kSoftcap / (power + 1.0f)) * kLog2E;
    } else {
      return score * kLog2E;
    }
  }

  FORGE_DEVICE static int key_token(int chunk) { return chunk * kChunk + thread_id() / kKeyLanes; }
  FORGE_DEVICE static int key_unit(int i) { return i * kKeyLanes + thread_id() % kKeyLanes; }
  FORGE_DEVICE static int value_place(int i) { return i * kTeams + thread_id() / kTeamLanes; }
  FORGE_DEVICE static int value_unit() { return thread_id() % kTeamLanes; }
  FORGE_DEVICE static u64 row_of(const Job& job, int token) {
    const int slot = load(job.table + token / Pool::kBlockTokens) * Pool::kBlockTokens + token % Pool::kBlockTokens;
    return Pool::index(slot, job.kv_head, 0);
  }

  /// Of a chunk's tokens, those from `from` to `to` that the row sees.
  FORGE_DEVICE static void load_keys(const Args& args, const Job& job, int chunk, int from, int to, Chunk& out) {
    const int token = key_token(chunk);
    if (!job.seen(token) || token < from || token > to) return;
    const u16* row = args.k + row_of(job, token);
    FORGE_UNROLL
    for (int i = 0; i < kKeyUnits; ++i)
      if (key_unit(i) < kUnits) out.keys[i] = load16(row + key_unit(i) * 8);
  }
  FORGE_DEVICE static void load_values(const Args& args, const Job& job, int chunk, int from, int to, Chunk& out) {
    FORGE_UNROLL
    for (int i = 0; i < kTeamTokens; ++i) {
      const int token = chunk * kChunk + value_place(i);
      if (!job.seen(token) || token < from || token > to || value_unit() >= kUnits) continue;
      out.values[i] = load16(args.v + row_of(job, token) + value_unit() * 8);
    }
  }
  FORGE_DEVICE static void load_query(const float* q, const Job& job, Lds& lds) {
    const float* from = q + (static_cast<u64>(job.t) * C::kHeads + job.head0) * kHeadDim;
    for (int i = thread_id(); i < kGroup * kHeadDim / 4; i += kThreads)
      lds.query.set(i, __builtin_bit_cast(F32x4, load16(from + i * 4)));
  }

  /// The token's scores, in all of its lanes; kLowest for one that is not seen.
  FORGE_DEVICE static void scores_of(const Chunk& chunk, bool is_seen, const Lds& lds, float (&scores)[kGroup]) {
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) scores[h] = 0;
    FORGE_UNROLL
    for (int i = 0; i < kKeyUnits; ++i) {
      // Beyond the last unit the keys are zeros. The query is not to be held in registers from chunk to chunk.
      const int unit = (key_unit(i) < kUnits ? key_unit(i) : 0) + opaque_zero();
      const Part key = elements_of<F16>(chunk.keys[i]);
      FORGE_UNROLL
      for (int h = 0; h < kGroup; ++h) {
        FORGE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const F32x4 query = lds.query.get(h * (kHeadDim / 4) + unit * 2 + half);
          FORGE_UNROLL
          for (int j = 0; j < 4; ++j) scores[h] = fma_of(query.at[j], key.at[half * 4 + j], scores[h]);
        }
      }
    }
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      const float dot = sum_lanes<kKeyLanes>(scores[h]);
      scores[h] = is_seen ? score_of(dot) : kLowest;
    }
  }

  /// One chunk into the running softmax. `next` is loaded into the registers that become free: -1 for no chunk.
  FORGE_DEVICE static void add_chunk(const Args& args, const Job& job, int chunk, int next, Chunk& loaded, State& state,
                                     Lds& lds) {
    const bool is_seen = job.seen(key_token(chunk));
    float scores[kGroup], keep[kGroup];
    scores_of(loaded, is_seen, lds, scores);
    loaded.keys_clear();
    if (next >= 0) load_keys(args, job, next, 0, job.position, loaded);
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      const float maximum = max_lanes<kWave>(scores[h]);
      if (lane_id() == 0) lds.maxima.set(h * C::kWaves + thread_id() / kWave, maximum);
    }
    barrier();
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      float maximum = state.maximum[h];
      FORGE_UNROLL
      for (int wave = 0; wave < C::kWaves; ++wave) maximum = max_of(maximum, lds.maxima.get(h * C::kWaves + wave));
      keep[h] = exp2_of(state.maximum[h] - maximum);
      state.maximum[h] = maximum;
      const float weight = is_seen ? exp2_of(scores[h] - maximum) : 0.0f;
      if (thread_id() % kKeyLanes != 0) continue;
      lds.weights.set(h * kChunk + thread_id() / kKeyLanes, weight);
      state.sum[h] = fma_of(state.sum[h], keep[h], weight);
    }
    barrier();
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      FORGE_UNROLL
      for (int j = 0; j < 8; ++j) state.values[h].at[j] *= keep[h];
    }
    FORGE_UNROLL
    for (int i = 0; i < kTeamTokens; ++i) {
      const Part value = elements_of<F16>(loaded.values[i]);
      FORGE_UNROLL
      for (int h = 0; h < kGroup; ++h) {
        const float weight = lds.weights.get(h * kChunk + value_place(i));
        FORGE_UNROLL
        for (int j = 0; j < 8; ++j) state.values[h].at[j] = fma_of(weight, value.at[j], state.values[h].at[j]);
      }
    }
    loaded.values_clear();
    if (next >= 0) load_values(args, job, next, 0, job.position, loaded);
  }

  /// The teams' values and the lanes' sums where all lanes see them. Ends with a barrier.
  FORGE_DEVICE static void share(const State& state, Lds& lds) {
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      const float sum = sum_lanes<kWave>(state.sum[h]);
      if (lane_id() == 0) lds.sums.set(h * C::kWaves + thread_id() / kWave, sum);
      if (value_unit() >= kUnits) continue;
      FORGE_UNROLL
      for (int half = 0; half < 2; ++half) {
        F32x4 four;
        FORGE_UNROLL
        for (int j = 0; j < 4; ++j) four.at[j] = state.values[h].at[half * 4 + j];
        lds.values.set(((thread_id() / kTeamLanes * kGroup + h) * kHeadDim) / 4 + value_unit() * 2 + half, four);
      }
    }
    barrier();
  }
  FORGE_DEVICE static float sum_of(const Lds& lds, int h) {
    float sum = 0;
    FORGE_UNROLL
    for (int wave = 0; wave < C::kWaves; ++wave) sum += lds.sums.get(h * C::kWaves + wave);
    return sum;
  }
  /// A dimension of a head, summed over the teams in their order.
  FORGE_DEVICE static float value_of(const Lds& lds, int h, int dim) {
    float value = 0;
    FORGE_UNROLL
    for (int team = 0; team < kTeams; ++team) value += lds.values.scalar((team * kGroup + h) * kHeadDim + dim);
    return value;
  }

  /// The worker's result for the one that combines.
  FORGE_DEVICE static void leave(const State& state, const Lds& lds, float* partial) {
    for (int i = thread_id(); i < kGroup * kHeadDim; i += kThreads)
      partial[i / kHeadDim * kPartial + i % kHeadDim] = value_of(lds, i / kHeadDim, i % kHeadDim);
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      if (thread_id() != h) continue;
      partial[h * kPartial + kHeadDim] = state.maximum[h];
      partial[h * kPartial + kHeadDim + 1] = sum_of(lds, h);
    }
  }

  /// One element of the row, which 16 neighbouring lanes make 16 of.
  FORGE_DEVICE static void write(const Args& args, const Job& job, int i, float value, bool real) {
    const int column = job.head0 * kHeadDim + i;
    if constexpr (C::kStored) store(args.out + static_cast<u64>(job.t) * kColumns + column, value, real);
    if constexpr (C::kQuantised)
      quantise_block<kColumns>(args.rows + static_cast<u64>(job.t) * Q8Rows<kColumns>::kRowBytes, column, value, real);
  }
  /// each(h, dim) gives the row's elements.
  template <class Each>
  FORGE_DEVICE static void write_row(const Args& args, const Job& job, Each&& each) {
    constexpr int kCount = kGroup * kHeadDim, kTurns = ceil_div(kCount, kThreads);
    FORGE_UNROLL
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = turn * kThreads + thread_id();
      const bool real = i < kCount;
      const float value = each(real ? i / kHeadDim : 0, real ? i % kHeadDim : 0);
      write(args, job, i, value, real);
    }
  }
  FORGE_DEVICE static void write_alone(const Args& args, const Job& job, const Lds& lds) {
    write_row(args, job, [&](int h, int dim) {
      const float sum = sum_of(lds, h);
      return sum > 0 ? value_of(lds, h, dim) / sum : 0.0f;
    });
  }
  /// The first `count` workers' results, in order.
  FORGE_DEVICE static void write_combined(const Args& args, const Job& job, const float* partials, int count,
                                          Lds& lds) {
    for (int i = thread_id(); i < count * kGroup; i += kThreads) {
      lds.worker_maxima.set(i, load_fresh(partials + static_cast<u64>(i) * kPartial + kHeadDim));
      lds.worker_sums.set(i, load_fresh(partials + static_cast<u64>(i) * kPartial + kHeadDim + 1));
    }
    barrier();
    write_row(args, job, [&](int h, int dim) {
      float maximum = kLowest, sum = 0, value = 0;
      for (int w = 0; w < count; ++w) maximum = max_of(maximum, lds.worker_maxima.get(w * kGroup + h));
      FORGE_UNROLL
      for (int w = 0; w < C::kWorkers; ++w) {  // without a branch, so that all loads are in flight together
        const int from = (w < count ? w : 0) * kGroup + h;
        const float weight = w < count ? exp2_of(lds.worker_maxima.get(from) - maximum) : 0.0f;
        sum = fma_of(lds.worker_sums.get(from), weight, sum);
        value = fma_of(load_fresh(partials + static_cast<u64>(from) * kPartial + dim), weight, value);
      }
      return sum > 0 ? value / sum : 0.0f;
    });
  }

  /// What the row has of this block: the step's inputs are older than the step, so nobody is waited for.
  FORGE_DEVICE static Job job_of(const Args& args, int t, int part) {
    const int position = load(args.positions + t), head0 = part * kGroup;
    const int sequence = position < 0 ? 0 : load(args.sequences + t);
    return {t,
            position,
            head0 / (C::kHeads / kKvHeads),
            head0,
            C::kWindow > 0 && position >= C::kWindow ? position - C::kWindow + 1 : 0,
            args.tables + static_cast<u64>(sequence) * C::kTableBlocks};
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int t = block_id() / (kJobs * C::kWorkers), part = block_id() % (kJobs * C::kWorkers) / C::kWorkers;
    const int worker = block_id() % C::kWorkers;
    release_consumers();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const Job job = job_of(args, t, part);
    const int first = job.oldest / kChunk, end = job.position < 0 ? first : job.position / kChunk + 1;
    const int wanted = ceil_div(end - first, C::kChunksPerWorker);
    const int workers = wanted < 1 ? 1 : wanted < C::kWorkers ? wanted : C::kWorkers;
    if (worker >= workers) return;

    // With one row a step, all keys and values but its own are older than the step.
    constexpr bool kOldOnes = C::kTokensTotal == 1;
    const int from = kOldOnes ? job.position : 0;
    Chunk loaded = {};
    if (kOldOnes && first + worker < end) {
      load_keys(args, job, first + worker, 0, job.position - 1, loaded);
      load_values(args, job, first + worker, 0, job.position - 1, loaded);
    }
    wait_for_producer();
    if (first + worker < end) {
      load_keys(args, job, first + worker, from, job.position, loaded);
      load_values(args, job, first + worker, from, job.position, loaded);
    }
    load_query(args.q, job, lds);
    barrier();
    State state = {};
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) state.maximum[h] = kLowest;
    FORGE_LOOP
    for (int chunk = first + worker; chunk < end; chunk += workers)
      add_chunk(args, job, chunk, chunk + workers < end ? chunk + workers : -1, loaded, state, lds);
    share(state, lds);
    if (C::kWorkers > 1 && workers > 1) {
      float* partials = args.scratch + (static_cast<u64>(t) * kJobs + part) * C::kWorkers * kGroup * kPartial;
      leave(state, lds, partials + static_cast<u64>(worker) * kGroup * kPartial);
      if (!last_arrival(args.counters + t * kJobs + part, static_cast<u32>(workers), lds.flag)) return;
      write_combined(args, job, partials, workers, lds);
    } else {
      write_alone(args, job, lds);
    }
  }
};

}  // namespace forge::gpu
