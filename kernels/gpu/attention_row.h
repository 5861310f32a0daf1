#pragma once
// What the kernels of decode attention over the paged KV pool share (attention.h, attention_head_tiles.h): the work of
// a block, and how results are merged and written. Rows are ragged: each row t has its own sequence and position. A
// block computes some query heads of one KV head for one row. The context is cut into chunks, which the waves of a
// block take in turn. Waves share nothing until all chunks are done; then maxima, sums and values are merged in the
// order of the waves.
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

/// Arguments of the kernels. A row with position -1 is padding: its output is zeros. K and V of all positions up to the
/// row's own must be in the pools already.
struct AttentionArgs {
  const float* q;        ///< [rows][kHeads][kHeadDim]
  const u16 *k, *v;      ///< the layer's pools
  const i32* positions;  ///< [rows]
  const i32* sequences;  ///< [rows]
  const i32* tables;     ///< [sequences][kTableBlocks]
  const i32* counts;
  float* scratch;       ///< [rows][kJobs][kWorkers][kGroup] of kValueDim + 2 floats; unused with one worker
  u32* counters;        ///< [rows][kJobs], zero before the first use and afterwards; unused with one worker
  float* out;           ///< [rows][kColumns]; written if kStored
  u8* rows;             ///< rows of activations in that format
  const float* sinks;   ///< [kHeads]; read only if kSinks
  const i32* selected;  ///< [rows][kSelectedLists][kSelected]; read only if kSelected > 0
};

template <class C>
struct AttentionRow {
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

  /// Keys and values of older tokens are loaded while the producer still writes those of the step's only row. Such a
  /// load must not bring a part of that row into the first cache, which loads sectors of 32 bytes (NVIDIA).
  static constexpr int kSectorBytes = 32;
  static constexpr bool kLoadsEarly = C::kTokensTotal == 1 &&
                                      Pool::template Rows<kHeadDim>::kRowBytes % kSectorBytes == 0 &&
                                      Pool::template Rows<kValueDim>::kRowBytes % kSectorBytes == 0;

  static constexpr int kThreads = C::kWaves * kWave;
  static constexpr int kJobs = C::kHeads / kGroup;  ///< blocks of a row, per worker
  static constexpr int kBlocks = C::kTokensTotal * kJobs * C::kWorkers;
  static constexpr int kColumns = C::kHeads * kValueDim;
  static constexpr float kLowest = -1e30f, kLog2E = 1.44269504088896f;
  static constexpr int kShares = C::kWaves > C::kWorkers ? C::kWaves : C::kWorkers;

  static constexpr int kHeadTurns = ceil_div(kGroup, C::kWaves), kShareTurns = ceil_div(C::kWorkers, kWave);
  struct Lds {
    Shared<F32x4, C::kWaves * kGroup * kValueDim / 4> values;  ///< [waves][kGroup][kValueDim]
    Shared<float, C::kWaves * kGroup> maxima, sums;            ///< [kGroup][waves]
    Shared<float, kShares * kGroup> factors;                   ///< [kGroup][waves]; when merged [kGroup][kWorkers]
    Shared<u32, 1> flag;
  };
  using Args = AttentionArgs;
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

  /// The number of a token's row in the pools.
  FORGE_DEVICE static u64 row_of(const Job& job, int token) {
    if constexpr (kSparse) token = job.keys.position_of(token);
    const int slot = load(job.table + token / Pool::kBlockTokens) * Pool::kBlockTokens + token % Pool::kBlockTokens;
    return Pool::row(slot, job.kv_head);
  }
  /// Index of a head's query, in floats.
  FORGE_DEVICE static u64 query_at(int t, int head) {
    if constexpr (C::kQueryFloats > 0) return static_cast<u64>(t) * C::kQueryFloats + head * kHeadDim;
    return (static_cast<u64>(t) * C::kHeads + head) * kHeadDim;
  }

  /// Queries that an earlier kernel has stored. Like every source of queries it has make(), which waits for the
  /// producer, and four(), between make() and done(). All lanes of the block call make() and done().
  struct StoredQueries {
    const Args& args;
    /// sees_own: the block's share of the context has the row's own position.
    FORGE_DEVICE void make(const Job& /*job*/, bool /*sees_own*/) const { wait_for_producer(); }
    /// Four dimensions from `dim` on of the query of the block's head `head`; 4 divides dim.
    FORGE_DEVICE F32x4 four(const Job& job, int head, int dim) const {
      return __builtin_bit_cast(F32x4, load16(args.q + query_at(job.t, job.head0 + head) + dim));
    }
    FORGE_DEVICE void done() const {}
  };

  /// 1 / the sum of a head's weights (and its sink's, if any); 0 if the row saw no token. The weights are relative to
  /// 2^maximum.
  FORGE_DEVICE static float inverse_sum(const Args& args, const Job& job, int h, float maximum, float sum) {
    if constexpr (C::kSinks) sum += exp2_of(load(args.sinks + job.head0 + h) * kLog2E - maximum);
    return sum > 0 ? 1.0f / sum : 0.0f;
  }
  /// What the waves' values are multiplied with where they are added up. A thread finds one factor, once for all
  /// columns. softmax: where a worker's maximum and sum of each head go; null if the block sees the whole context,
  /// whose factors have the sum in them.
  FORGE_DEVICE static void weigh_waves(const Args& args, const Job& job, float* softmax, Lds& lds) {
    FORGE_LOOP
    for (int i = thread_id(); i < kGroup * C::kWaves; i += kThreads) {
      const int h = i / C::kWaves;
      float maximum = kLowest, sum = 0;
      FORGE_UNROLL
      for (int wave = 0; wave < C::kWaves; ++wave) maximum = max_of(maximum, lds.maxima.get(h * C::kWaves + wave));
      FORGE_UNROLL
      for (int wave = 0; wave < C::kWaves; ++wave)
        sum = fma_of(lds.sums.get(h * C::kWaves + wave), exp2_of(lds.maxima.get(h * C::kWaves + wave) - maximum), sum);
      const float factor = exp2_of(lds.maxima.get(i) - maximum);
      lds.factors.set(i, softmax == nullptr ? factor * inverse_sum(args, job, h, maximum, sum) : factor);
      if (softmax == nullptr || i % C::kWaves != 0) continue;
      softmax[2 * h] = maximum;
      softmax[2 * h + 1] = sum;
    }
    barrier();
  }
  /// The waves' values of one dimension of a head, added up.
  FORGE_DEVICE static float merged(const Lds& lds, int h, int dim) {
    float out = 0;
    FORGE_UNROLL
    for (int wave = 0; wave < C::kWaves; ++wave)
      out =
          fma_of(lds.values.scalar((wave * kGroup + h) * kValueDim + dim), lds.factors.get(h * C::kWaves + wave), out);
    return out;
  }

  /// Partial results of job `number`, [kWorkers][kGroup][kValueDim] values and [kWorkers][kGroup] maxima and sums.
  FORGE_DEVICE static float* values_of(const Args& args, int number) {
    return args.scratch + static_cast<u64>(number) * C::kWorkers * kGroup * kValueDim;
  }
  FORGE_DEVICE static float* softmax_of(const Args& args, int number) {
    return values_of(args, C::kTokensTotal * kJobs) + static_cast<u64>(number) * C::kWorkers * kGroup * 2;
  }
  /// Writes the worker's partial result.
  FORGE_DEVICE static void write_partial(const Args& args, const Job& job, int number, int worker, Lds& lds) {
    weigh_waves(args, job, softmax_of(args, number) + worker * kGroup * 2, lds);
    float* values = values_of(args, number) + worker * kGroup * kValueDim;
    for (int i = thread_id(); i < kGroup * kValueDim; i += kThreads)
      values[i] = merged(lds, i / kValueDim, i % kValueDim);
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
  FORGE_DEVICE static void write_single(const Args& args, const Job& job, Lds& lds) {
    weigh_waves(args, job, nullptr, lds);
    write_row(args, job, [&](int h, int dim) { return merged(lds, h, dim); });
  }
  /// A lane's part of the workers' maxima and sums: the wave has every kWaves-th head, the lane every kWave-th worker.
  struct Softmax {
    float maximum[kHeadTurns][kShareTurns], sum[kHeadTurns][kShareTurns];
  };
  FORGE_DEVICE static void load_softmax(const float* from, int count, Softmax& out) {
    FORGE_UNROLL
    for (int turn = 0; turn < kHeadTurns; ++turn) {
      FORGE_UNROLL
      for (int i = 0; i < kShareTurns; ++i) {
        const int h = wave_id() + turn * C::kWaves, worker = lane_id() + i * kWave;
        const bool real = h < kGroup && worker < count;
        const float* at = from + (worker * kGroup + h) * 2;
        out.maximum[turn][i] = real ? load_fresh(at) : kLowest;
        out.sum[turn][i] = real ? load_fresh(at + 1) : 0.0f;
      }
    }
  }
  /// What the workers' values are multiplied with where they are added up.
  FORGE_DEVICE static void weigh_workers(const Args& args, const Job& job, const Softmax& softmax, Lds& lds) {
    FORGE_UNROLL
    for (int turn = 0; turn < kHeadTurns; ++turn) {
      const int h = wave_id() + turn * C::kWaves;
      float maximum = kLowest, sum = 0, weight[kShareTurns];
      FORGE_UNROLL
      for (int i = 0; i < kShareTurns; ++i) maximum = max_of(maximum, softmax.maximum[turn][i]);
      maximum = max_lanes<kWave>(maximum);
      FORGE_UNROLL
      for (int i = 0; i < kShareTurns; ++i) {
        weight[i] = exp2_of(softmax.maximum[turn][i] - maximum);
        sum = fma_of(softmax.sum[turn][i], weight[i], sum);
      }
      sum = sum_lanes<kWave>(sum);
      if (h >= kGroup) continue;
      const float inverse = inverse_sum(args, job, h, maximum, sum);
      FORGE_UNROLL
      for (int i = 0; i < kShareTurns; ++i)
        if (lane_id() + i * kWave < C::kWorkers)
          lds.factors.set(h * C::kWorkers + lane_id() + i * kWave, weight[i] * inverse);
    }
  }
  /// Merges the partial results of the first `count` workers in their order and writes the output. A lane has four
  /// dimensions at a time, whose values of up to kTogether workers it loads before it uses the first; to avoid a
  /// branch, missing workers load worker 0's result with weight 0.
  FORGE_DEVICE static void write_combined(const Args& args, const Job& job, int number, int count, Lds& lds) {
    constexpr int kQuads = kGroup * kValueDim / 4, kTogether = C::kWorkers < 16 ? C::kWorkers : 16;
    const float* values = values_of(args, number);
    Softmax softmax;
    load_softmax(softmax_of(args, number), count, softmax);
    FORGE_LOOP
    for (int first = 0; first < kQuads; first += kThreads) {
      const int quad = first + thread_id(), at = quad < kQuads ? quad : 0, h = at / (kValueDim / 4);
      F32x4 value{};
      FORGE_UNROLL
      for (int some = 0; some < C::kWorkers; some += kTogether) {
        if (some > 0 && some >= count) continue;
        F32x4 loaded[kTogether];
        FORGE_UNROLL
        for (int i = 0; i < kTogether; ++i)
          loaded[i] = load_fresh4(values + (some + i < count ? some + i : 0) * kGroup * kValueDim + at * 4);
        if (some == 0 && first == 0) {
          weigh_workers(args, job, softmax, lds);
          barrier();
        }
        FORGE_UNROLL
        for (int i = 0; i < kTogether; ++i) {
          const float factor = some + i < count ? lds.factors.get(h * C::kWorkers + some + i) : 0.0f;
          FORGE_UNROLL
          for (int d = 0; d < 4; ++d) value.at[d] = fma_of(loaded[i].at[d], factor, value.at[d]);
        }
      }
      if (quad < kQuads) lds.values.set(quad, value);
    }
    barrier();
    write_row(args, job, [&](int h, int dim) { return lds.values.scalar(h * kValueDim + dim); });
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
    // Padding has a sequence too, so that neither load waits for the other.
    const int position = uniform(load(args.positions + t)), head0 = part * kGroup, sequence = load(args.sequences + t);
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
  /// The block's share of a context in chunks of Chunk tokens: those of worker `worker` of `workers`. Its waves take
  /// chunks first, first + stride, ... below `end`.
  struct Share {
    int part, worker, workers, first, end, stride;
  };
  /// The share of block `id` of kBlocks, [rows][kJobs][kWorkers]. Returns false if the worker has none.
  template <int Chunk>
  FORGE_DEVICE static bool find_share(const Job& job, int id, Share& share) {
    constexpr int kChunksPerWorker = at_least_one(C::kTokensPerWorker / Chunk);
    const int oldest = job.oldest / Chunk, end = job.newest < 0 ? oldest : job.newest / Chunk + 1;
    const int wanted = ceil_div(end - oldest, kChunksPerWorker);
    const int workers = wanted < 1 ? 1 : wanted < C::kWorkers ? wanted : C::kWorkers, worker = id % C::kWorkers;
    share = {part_of(id), worker, workers, oldest + worker + workers * wave_id(), end, workers * C::kWaves};
    return worker < workers;
  }
  /// True if the worker's chunks have the row's own position.
  template <int Chunk>
  FORGE_DEVICE static bool sees_own(const Job& job, const Share& share) {
    return (job.newest / Chunk - job.oldest / Chunk) % share.workers == share.worker;
  }
  /// The row and the part of its heads of block `id`.
  FORGE_DEVICE static int row_of_block(int id) { return id / (kJobs * C::kWorkers); }
  FORGE_DEVICE static int part_of(int id) { return id % (kJobs * C::kWorkers) / C::kWorkers; }
  /// Merges what the waves have left in shared memory, before a barrier, and writes the output, or the worker's partial
  /// result; the last worker merges those.
  FORGE_DEVICE static void finish(const Args& args, const Job& job, const Share& share, Lds& lds) {
    if (C::kWorkers > 1 && share.workers > 1) {
      const int number = job.t * kJobs + share.part;
      write_partial(args, job, number, share.worker, lds);
      if (!last_arrival(args.counters + number, static_cast<u32>(share.workers), lds.flag)) return;
      write_combined(args, job, number, share.workers, lds);
    } else {
      write_single(args, job, lds);
    }
  }
};

}  // namespace forge::gpu
