#pragma once
// Attention over the paged f16 KV pool, ragged: each row t has its own sequence and position. The context is cut into
// chunks of a fixed size. kWorkers blocks of the grid share the chunks of a row and some heads of one KV head: worker g
// takes chunks g, g + kWorkers, ... with a running softmax, and the last worker to finish combines what all of them
// left, in the workers' order. So the grid never grows with the context, and the result does not depend on who is last.
// All the heads that a block serves read its keys and values once.
// Softmax online, in base 2: Milakov and Gimelshein, arXiv 1805.02867; Dao, arXiv 2205.14135.

#include "kernels/gpu/formats.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// A configuration derives from this and names Pool (KvPool), kHeads, kTableBlocks and kScale.
struct AttentionDefaults {
  static constexpr int kTokensTotal = 1;
  static constexpr int kWorkers = 8;         ///< blocks that share a row
  static constexpr int kWaves = 4;           ///< a block
  static constexpr int kTokensAhead = 2;     ///< tokens a team loads at once
  static constexpr int kHeadsPerBlock = 0;   ///< 0: all the heads of a KV head
  static constexpr int kWindow = 0;          ///< tokens that a row sees, itself included; 0: all
  static constexpr float kSoftcap = 0;       ///< scores become cap * tanh(score / cap); 0: they do not
  static constexpr bool kStored = true;      ///< out is written in f32
  static constexpr bool kQuantised = false;  ///< out is written as quantised activations
};

template <class C>
struct Attention {
  using Pool = typename C::Pool;
  static constexpr int kHeadDim = Pool::kHeadDim, kKvHeads = Pool::kKvHeads;
  static constexpr int kGroup = C::kHeadsPerBlock > 0 ? C::kHeadsPerBlock : C::kHeads / kKvHeads;
  static_assert(C::kHeads % kKvHeads == 0 && C::kHeads / kKvHeads % kGroup == 0, "blocks serve heads of one KV head");
  static_assert(kHeadDim % 8 == 0 && kHeadDim <= 256, "head_dim: a multiple of 8, at most 256");

  FORGE_DEVICE static constexpr int lanes_of(int units) { return units <= 1 ? 1 : 2 * lanes_of((units + 1) / 2); }
  static constexpr int kUnits = kHeadDim / 8;          ///< loads of 16 bytes a row of K or V takes
  static constexpr int kTeamLanes = lanes_of(kUnits);  ///< lanes that share a token
  static constexpr int kThreads = C::kWaves * kWave, kTeams = kThreads / kTeamLanes;
  static constexpr int kChunk = kTeams * C::kTokensAhead;
  static constexpr int kJobs = C::kHeads / kGroup;  ///< blocks a row, but for the workers
  static constexpr int kBlocks = C::kTokensTotal * kJobs * C::kWorkers;
  static constexpr int kPartial = kHeadDim + 2;  ///< floats a head leaves: values, maximum, sum
  static constexpr int kColumns = C::kHeads * kHeadDim;
  static constexpr float kLowest = -1e30f, kLog2E = 1.44269504088896f;

  struct Lds {
    Shared<float, kTeams * kGroup * kHeadDim> values;
    Shared<float, kTeams * kGroup> maxima, sums;
    Shared<float, C::kWorkers * kGroup> worker_maxima, worker_sums;
    Shared<float, kGroup * kHeadDim> out;
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
  struct Query {
    Part heads[kGroup];
  };
  struct State {
    Part values[kGroup];
    float maximum[kGroup], sum[kGroup];
  };
  struct Chunk {
    U32x4 keys[C::kTokensAhead], values[C::kTokensAhead];
  };
  struct Job {
    int t, position, kv_head, head0, oldest;
    const i32* table;
    int team, unit;
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

  FORGE_DEVICE static Query load_query(const float* q, const Job& job) {
    Query query = {};
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      const float* from = q + (static_cast<u64>(job.t) * C::kHeads + job.head0 + h) * kHeadDim + job.unit * 8;
      FORGE_UNROLL
      for (int i = 0; i < 8; i += 4) {
        if (job.unit >= kUnits) continue;
        const U32x4 four = load16(from + i);
        FORGE_UNROLL
        for (int j = 0; j < 4; ++j) query.heads[h].at[i + j] = __builtin_bit_cast(float, four.at[j]);
      }
    }
    return query;
  }

  FORGE_DEVICE static bool seen(const Job& job, int token) { return token >= job.oldest && token <= job.position; }
  FORGE_DEVICE static int token_of(const Job& job, int chunk, int ahead) {
    return chunk * kChunk + ahead * kTeams + job.team;
  }

  FORGE_DEVICE static Chunk load_chunk(const Args& args, const Job& job, int chunk) {
    Chunk out = {};
    FORGE_UNROLL
    for (int a = 0; a < C::kTokensAhead; ++a) {
      const int token = token_of(job, chunk, a);
      if (!seen(job, token) || job.unit >= kUnits) continue;
      const int slot = load(job.table + token / Pool::kBlockTokens) * Pool::kBlockTokens + token % Pool::kBlockTokens;
      const u64 at = Pool::index(slot, job.kv_head, job.unit * 8);
      out.keys[a] = load16(args.k + at);
      out.values[a] = load16(args.v + at);
    }
    return out;
  }

  /// One token into the running softmax; a token that is not seen has weight 0.
  FORGE_DEVICE static void add_token(const Query& query, const Part& key, const Part& value, bool is_seen,
                                     State& state) {
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      float dot = 0;
      FORGE_UNROLL
      for (int i = 0; i < 8; ++i) dot = fma_of(query.heads[h].at[i], key.at[i], dot);
      const float score = score_of(sum_lanes<kTeamLanes>(dot));
      const float maximum = is_seen ? max_of(state.maximum[h], score) : state.maximum[h];
      const float keep = exp2_of(state.maximum[h] - maximum), weight = is_seen ? exp2_of(score - maximum) : 0.0f;
      state.maximum[h] = maximum;
      state.sum[h] = fma_of(state.sum[h], keep, weight);
      FORGE_UNROLL
      for (int i = 0; i < 8; ++i) state.values[h].at[i] = fma_of(state.values[h].at[i], keep, weight * value.at[i]);
    }
  }
  FORGE_DEVICE static void add_chunk(const Query& query, const Job& job, int chunk, const Chunk& loaded, State& state) {
    FORGE_UNROLL
    for (int a = 0; a < C::kTokensAhead; ++a)
      add_token(query, elements_of<F16>(loaded.keys[a]), elements_of<F16>(loaded.values[a]),
                seen(job, token_of(job, chunk, a)), state);
  }

  /// Combines the teams' states in order of the teams: lds.out the values, not divided, and the first team's maximum
  /// and sum their own.
  FORGE_DEVICE static void combine_teams(const State& state, const Job& job, Lds& lds, float* partial) {
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      const int row = job.team * kGroup + h;
      if (job.unit == 0) {
        lds.maxima.set(row, state.maximum[h]);
        lds.sums.set(row, state.sum[h]);
      }
      if (job.unit >= kUnits) continue;
      FORGE_UNROLL
      for (int i = 0; i < 8; ++i) lds.values.set(row * kHeadDim + job.unit * 8 + i, state.values[h].at[i]);
    }
    barrier();
    for (int i = thread_id(); i < kGroup * kHeadDim; i += kThreads) {
      const int h = i / kHeadDim, dim = i % kHeadDim;
      float maximum = kLowest, sum = 0, value = 0;
      FORGE_UNROLL
      for (int team = 0; team < kTeams; ++team) maximum = max_of(maximum, lds.maxima.get(team * kGroup + h));
      FORGE_UNROLL
      for (int team = 0; team < kTeams; ++team) {
        const int row = team * kGroup + h;
        const float weight = exp2_of(lds.maxima.get(row) - maximum);
        sum = fma_of(lds.sums.get(row), weight, sum);
        value = fma_of(lds.values.get(row * kHeadDim + dim), weight, value);
      }
      if (partial == nullptr) {
        lds.out.set(i, sum > 0 ? value / sum : 0.0f);
        continue;
      }
      partial[h * kPartial + dim] = value;
      if (dim != 0) continue;
      partial[h * kPartial + kHeadDim] = maximum;
      partial[h * kPartial + kHeadDim + 1] = sum;
    }
  }

  /// The first `count` workers' partial results, in order, into lds.out.
  FORGE_DEVICE static void combine_workers(const float* partials, int count, Lds& lds) {
    for (int i = thread_id(); i < count * kGroup; i += kThreads) {
      lds.worker_maxima.set(i, load(partials + static_cast<u64>(i) * kPartial + kHeadDim));
      lds.worker_sums.set(i, load(partials + static_cast<u64>(i) * kPartial + kHeadDim + 1));
    }
    barrier();
    for (int i = thread_id(); i < kGroup * kHeadDim; i += kThreads) {
      const int h = i / kHeadDim, dim = i % kHeadDim;
      float maximum = kLowest, sum = 0, value = 0;
      for (int w = 0; w < count; ++w) maximum = max_of(maximum, lds.worker_maxima.get(w * kGroup + h));
      FORGE_UNROLL
      for (int w = 0; w < C::kWorkers; ++w) {
        if (w >= count) continue;
        const float weight = exp2_of(lds.worker_maxima.get(w * kGroup + h) - maximum);
        sum = fma_of(lds.worker_sums.get(w * kGroup + h), weight, sum);
        value = fma_of(load(partials + static_cast<u64>(w * kGroup + h) * kPartial + dim), weight, value);
      }
      lds.out.set(i, sum > 0 ? value / sum : 0.0f);
    }
  }

  FORGE_DEVICE static void write_out(const Args& args, const Job& job, const Lds& lds) {
    constexpr int kCount = kGroup * kHeadDim, kTurns = ceil_div(kCount, kThreads);
    const int column0 = job.head0 * kHeadDim;
    FORGE_UNROLL
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = turn * kThreads + thread_id();
      const bool real = i < kCount;
      const float value = lds.out.get(real ? i : 0);
      if constexpr (C::kStored) store(args.out + static_cast<u64>(job.t) * kColumns + column0 + i, value, real);
      if constexpr (C::kQuantised)
        quantise_block<kColumns>(args.rows + static_cast<u64>(job.t) * Q8Rows<kColumns>::kRowBytes, column0 + i, value,
                                 real);
    }
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int t = block_id() / (kJobs * C::kWorkers), part = block_id() % (kJobs * C::kWorkers) / C::kWorkers;
    const int worker = block_id() % C::kWorkers;
    wait_for_producer();
    release_consumers();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const int position = load(args.positions + t), head0 = part * kGroup;
    const int oldest = C::kWindow > 0 && position >= C::kWindow ? position - C::kWindow + 1 : 0;
    const int sequence = position < 0 ? 0 : load(args.sequences + t);
    const Job job{t,
                  position,
                  head0 / (C::kHeads / kKvHeads),
                  head0,
                  oldest,
                  args.tables + static_cast<u64>(sequence) * C::kTableBlocks,
                  thread_id() / kTeamLanes,
                  thread_id() % kTeamLanes};
    const int first = oldest / kChunk, end = position < 0 ? first : position / kChunk + 1;
    const int chunks = end - first, workers = chunks < 1 ? 1 : chunks < C::kWorkers ? chunks : C::kWorkers;
    if (worker >= workers) return;

    const Query query = load_query(args.q, job);
    State state = {};
    FORGE_UNROLL
    for (int h = 0; h < kGroup; ++h) state.maximum[h] = kLowest;
    if (chunks > 0) {
      int chunk = first + worker;
      Chunk loaded = load_chunk(args, job, chunk);
      for (; chunk + C::kWorkers < end; chunk += C::kWorkers) {
        const Chunk next = load_chunk(args, job, chunk + C::kWorkers);
        add_chunk(query, job, chunk, loaded, state);
        loaded = next;
      }
      add_chunk(query, job, chunk, loaded, state);
    }
    if constexpr (C::kWorkers > 1) {
      float* partials = args.scratch + (static_cast<u64>(t) * kJobs + part) * C::kWorkers * kGroup * kPartial;
      float* partial = partials + static_cast<u64>(worker) * kGroup * kPartial;
      combine_teams(state, job, lds, workers > 1 ? partial : nullptr);
      if (workers > 1) {
        const u32 arrivals = static_cast<u32>(workers);
        if (!last_arrival(args.counters + t * kJobs + part, arrivals, lds.flag)) return;
        combine_workers(partials, workers, lds);
      }
    } else {
      combine_teams(state, job, lds, nullptr);
    }
    barrier();
    write_out(args, job, lds);
  }
};

}  // namespace forge::gpu
