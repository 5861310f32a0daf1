#pragma once
// What the kernels of attention on latents (multi-head latent attention, DeepSeek-V2: arXiv 2405.04434) for single rows
// of a step have in common. The paged f16 pool has one row for each token, which all heads share: its kRow columns are
// the key, and the first kValueDim of them the value. Rows of a step are ragged: each row t has its own sequence and
// position. A block computes kGroup heads of one row t.
//
// Long contexts are shared by workers. Each leaves its share: its values divided by the sum of their weights, the
// largest score and that sum. Shares are merged in two levels, because a block that reads those of many workers takes
// longer than their attention:
//
//   workers   0 1 2 3 | 4 5 6 7 | 8 9        the last to arrive of each group merges the group's shares
//   groups    0         4         8          the last group to arrive merges the groups'
//
// Sparse attention: the context is that of the selected positions (selected_keys.h). Where their rows are in the pool
// is looked up for many chunks at once, into shared memory, because each look-up waits for two loads.

#include "kernels/gpu/formats.h"
#include "kernels/gpu/selected_keys.h"
#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names Pool (KvPool with one head), kValueDim, kHeads,
/// kHeadsPerBlock, kWaves, kTableBlocks and kScale.
struct LatentAttentionDefaults {
  static constexpr int kTokensTotal = 1;
  static constexpr int kWorkers = 1;            ///< most blocks that share the context of a row
  static constexpr int kMerged = 1;             ///< workers of a group, at least as many as there are groups
  static constexpr int kTokensPerWorker = 256;  ///< least tokens of a worker before another one is used
  static constexpr int kQueryFloats = 0;        ///< floats from row to row of q; 0: kHeads * kRow
  static constexpr int kSelected = 0;           ///< sparse attention: entries of a row's list of blocks; 0: off
  static constexpr int kSelectedBlock = 1;      ///< positions of such a block
  static constexpr bool kStored = true;         ///< out is written in f32
  static constexpr int kFormat = 0;             ///< format of the row that matmuls read (activations.h); 0: none
};

/// Chunk: tokens that a kernel stages together.
template <class C, int Chunk>
struct LatentRow {
  using Pool = typename C::Pool;
  static constexpr int kRow = Pool::kHeadDim, kValueDim = C::kValueDim, kGroup = C::kHeadsPerBlock;
  static constexpr bool kShared = true;  ///< values are the first columns of keys
  static constexpr int kThreads = C::kWaves * kWave, kChunk = Chunk;
  static constexpr int kUnits = kRow / 8, kValueUnits = kValueDim / 8;  ///< of 16 bytes
  static constexpr int kStride = kUnits | 1;  ///< units from row to row in shared memory; odd, against bank conflicts
  static constexpr int kLoads = ceil_div(kChunk * kUnits, kThreads);  ///< units that a thread stages
  static constexpr int kJobs = ceil_div(C::kHeads, kGroup), kBlocks = C::kTokensTotal * kJobs * C::kWorkers;
  static constexpr int kColumns = C::kHeads * kValueDim;
  static constexpr int kPartial = kValueDim + 4;  ///< of a head: values, maximum, sum, and two that keep 16 bytes
  static constexpr int kMerged = C::kMerged;
  static constexpr int kGroups = ceil_div(C::kWorkers, kMerged);   ///< of workers
  static constexpr int kCounters = kGroups > 1 ? 1 + kGroups : 1;  ///< of a job: of its groups, of the workers of each
  static constexpr int kChunksPerWorker = at_least_one(C::kTokensPerWorker / kChunk);
  static constexpr float kLowest = -1e30f, kLog2E = 1.44269504088896f;
  static constexpr bool kSparse = C::kSelected > 0;
  static constexpr int kFoundChunks = 256 / kChunk;  ///< chunks whose rows are looked up at once, with kSparse
  static_assert(Pool::kKvHeads == 1 && kRow % 8 == 0 && kValueDim % (C::kFormat > 0 ? 16 : 8) == 0 && kValueDim <= kRow,
                "rows are those of one head, whole units wide, and quantised values whole blocks");
  static_assert(Pool::kBlockTokens % kChunk == 0, "a chunk lies within one block of the pool");
  static_assert(kGroups <= kMerged, "a merge has no more groups than workers");

  using Slots = Shared<i32, kSparse ? kFoundChunks * kChunk : 1>;  ///< rows of the pool, with kSparse
  /// What a worker has found of its heads. The values are to be multiplied by the head's factor.
  struct Share {
    static constexpr int kFours = kValueDim / 4, kHeadFours = kFours + 1;  ///< padded against bank conflicts
    Shared<F32x4, kGroup * kHeadFours> values;                             ///< [kGroup][kHeadFours]
    Shared<float, kGroup> factors, maxima, sums;
    Shared<float, kGroup * kMerged> weights;  ///< [kGroup][kMerged] what the values of each share count
    Shared<u32, 1> flag;
    FORGE_DEVICE float value(int h, int dim) const { return values.scalar(h * kHeadFours * 4 + dim) * factors.get(h); }
  };
  /// As Attention::Args; v and sinks are not read. A row with position -1 is padding: its output is zeros.
  struct Args {
    const float* q;        ///< [rows][kHeads][kRow]
    const u16 *k, *v;      ///< k: the layer's pool
    const i32* positions;  ///< [rows]
    const i32* sequences;  ///< [rows]
    const i32* tables;     ///< [sequences][kTableBlocks]
    const i32* counts;
    float* scratch;  ///< [rows][kJobs][kWorkers][kGroup][kPartial]; unused with one worker
    u32* counters;   ///< [rows][kJobs][kCounters], zero before the first use and afterwards; unused with one worker
    float* out;      ///< [rows][kColumns]; written if kStored
    u8* rows;        ///< rows of activations in that format
    const float* sinks;
    const i32* selected;  ///< [rows][kSelected]; read if kSelected > 0
  };
  /// Heads head0 .. head0+kGroup-1 of row t, those that exist. It sees tokens up to `newest`: its positions, or with
  /// kSparse those of `keys`. table: the block table of its sequence. Worker `worker` of `workers` has chunks worker,
  /// worker + workers, ... of `end`.
  struct Job {
    int t, part, head0, newest, end, worker, workers;
    const i32* table;
    SelectedKeys<at_least_one(C::kSelected), C::kSelectedBlock> keys;
  };

  /// The first position that a row sees.
  FORGE_DEVICE static int oldest_of(int) { return 0; }
  FORGE_DEVICE static int slot_of(const Job& job, int position) {
    return load(job.table + position / Pool::kBlockTokens) * Pool::kBlockTokens + position % Pool::kBlockTokens;
  }
  /// Index of a head's query, in floats.
  FORGE_DEVICE static u64 query_at(int t, int head) {
    constexpr int kFloats = C::kQueryFloats > 0 ? C::kQueryFloats : C::kHeads * kRow;
    return static_cast<u64>(t) * kFloats + head * kRow;
  }

  /// The job of block `id` of kBlocks, [rows][kJobs][kWorkers]. Returns false if the block has none. Waits for the
  /// producer.
  FORGE_DEVICE static bool find_job(const Args& args, int id, Job& job) {
    const int t = id / (kJobs * C::kWorkers), part = id / C::kWorkers % kJobs, worker = id % C::kWorkers;
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return false;
    const int position = uniform(load(args.positions + t));
    const int sequence = position < 0 ? 0 : load(args.sequences + t);
    const i32* table = args.tables + static_cast<u64>(sequence) * C::kTableBlocks;
    job = {t, part, part * kGroup, position, 0, worker, 1, table, {}};
    if constexpr (kSparse) {
      wait_for_producer();
      job.keys = {args.selected + static_cast<u64>(t) * C::kSelected};
      job.newest = uniform(job.keys.tokens(position)) - 1;
    }
    job.end = job.newest < 0 ? 0 : job.newest / kChunk + 1;
    const int wanted = ceil_div(job.end, kChunksPerWorker);
    job.workers = wanted < 1 ? 1 : wanted < C::kWorkers ? wanted : C::kWorkers;
    if (worker >= job.workers) return false;
    if constexpr (!kSparse) wait_for_producer();
    return true;
  }
  /// Looks up the rows of kFoundChunks chunks: `chunk` and every job.workers-th one after it. With kSparse all threads
  /// call this before they load the first of these chunks. Has two barriers.
  FORGE_DEVICE static void find_rows(const Job& job, int chunk, Slots& slots) {
    barrier();
    for (int i = thread_id(); i < kFoundChunks * kChunk; i += kThreads) {
      const int token = (chunk + i / kChunk * job.workers) * kChunk + i % kChunk;
      if (token <= job.newest) slots.set(i, slot_of(job, job.keys.position_of(token)));
    }
    barrier();
  }
  /// Calls each(place, from, real) for the units that the thread stages of the worker's n-th chunk: `place` in shared
  /// memory, from row to row kStride. Units of tokens that the row does not see are not real: they must be zeros.
  /// slot: that of the chunk's first token; not used with kSparse.
  template <class Each>
  FORGE_DEVICE static void each_unit(const Args& args, const Job& job, int n, int slot, const Slots& slots,
                                     Each&& each) {
    const int token0 = (job.worker + n * job.workers) * kChunk, own = opaque(thread_id());  // places are not kept
    FORGE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kThreads + own, token = at / kUnits, unit = at % kUnits;
      const bool exists = kChunk * kUnits % kThreads == 0 || at < kChunk * kUnits;
      const bool real = exists && token0 + token <= job.newest;
      int row = 0;
      if (real) row = kSparse ? slots.get(n % kFoundChunks * kChunk + token) : slot + token;
      each(i, exists, token * kStride + unit, args.k + Pool::index(row, 0, unit * 8), real);
    }
  }

  /// Writes what the softmax of HeadLanes neighbouring lanes a head leaves, `sum` being the lane's own. All lanes of
  /// the block; those beyond the heads write nothing.
  template <int HeadLanes>
  FORGE_DEVICE static void store_softmax(Share& share, float maximum, float sum) {
    sum = sum_lanes<HeadLanes>(sum);
    const int head = thread_id() / HeadLanes;
    if (thread_id() % HeadLanes != 0 || head >= kGroup) return;
    share.sums.set(head, sum);
    share.maxima.set(head, maximum);
    share.factors.set(head, sum > 0 ? 1.0f / sum : 0.0f);
  }

  /// As Attention::write.
  FORGE_DEVICE static void write(const Args& args, int t, int column, float value, bool real) {
    if constexpr (C::kStored) store(args.out + static_cast<u64>(t) * kColumns + column, value, real);
    if constexpr (C::kFormat > 0) store_activation<kColumns, C::kFormat>(args.rows, t, column, value, real);
  }
  /// Writes the job's output. 16 neighbouring lanes make one quantised block.
  FORGE_DEVICE static void write_job(const Args& args, const Job& job, const Share& share) {
    constexpr int kCount = kGroup * kValueDim;
    for (int turn = 0; turn < ceil_div(kCount, kThreads); ++turn) {
      const int i = turn * kThreads + thread_id(), column = job.head0 * kValueDim + i;
      const bool real = i < kCount && (C::kHeads % kGroup == 0 || column < kColumns);
      write(args, job.t, column, share.value(real ? i / kValueDim : 0, real ? i % kValueDim : 0), real);
    }
  }
  FORGE_DEVICE static void write_partial(const Share& share, float* partial) {
    for (int i = thread_id(); i < kGroup * kPartial; i += kThreads) {
      const int h = i / kPartial, at = i % kPartial;
      partial[i] = at < kValueDim        ? share.value(h, at)
                   : at == kValueDim     ? share.maxima.get(h)
                   : at == kValueDim + 1 ? share.sums.get(h)
                                         : 0.0f;
    }
  }
  /// Merges `count` shares, every `stride`-th of `partials`, in their order. Thousands of loads would wait one after
  /// another, so they are of 16 bytes, and each thread has kTogether in flight. Ends with a barrier.
  FORGE_DEVICE static void merge(const float* partials, int stride, int count, Share& share) {
    constexpr int kTogether = kMerged < 8 ? kMerged : 8, kFours = Share::kFours;
    const auto of_head = [&](int w, int h) { return partials + (w * stride * kGroup + h) * kPartial; };
    for (int i = thread_id(); i < kGroup * count; i += kThreads) {
      const int h = i / count, own = i % count;
      float maxima[kTogether], maximum = kLowest, sum = 0, mine = 0;
      for (int pass = 0; pass < 2; ++pass)  // first the largest maximum, then the sum of all weights
        for (int first = 0; first < count; first += kTogether) {
          float sums[kTogether];
          FORGE_UNROLL
          for (int j = 0; j < kTogether; ++j) {
            const float* from = of_head(first + j < count ? first + j : own, h) + kValueDim;
            maxima[j] = load_fresh(from);
            sums[j] = load_fresh(from + 1);
          }
          FORGE_UNROLL
          for (int j = 0; j < kTogether; ++j) {
            if (pass == 0) maximum = max_of(maximum, maxima[j]);
            const float weight = pass == 1 && first + j < count ? exp2_of(maxima[j] - maximum) * sums[j] : 0.0f;
            sum += weight;
            if (first + j == own) mine = weight;
          }
        }
      share.weights.set(h * kMerged + own, sum > 0 ? mine / sum : 0.0f);
      if (own > 0) continue;
      share.factors.set(h, 1.0f);
      share.maxima.set(h, maximum);
      share.sums.set(h, sum);
    }
    barrier();
    for (int i = thread_id(); i < kGroup * kFours; i += kThreads) {
      const int h = i / kFours, dim = i % kFours * 4;
      F32x4 value{};
      for (int first = 0; first < count; first += kTogether) {
        F32x4 parts[kTogether];
        FORGE_UNROLL
        for (int j = 0; j < kTogether; ++j) parts[j] = load_fresh4(of_head(first + j < count ? first + j : 0, h) + dim);
        FORGE_UNROLL
        for (int j = 0; j < kTogether; ++j) {
          const float weight = first + j < count ? share.weights.get(h * kMerged + first + j) : 0.0f;
          FORGE_UNROLL
          for (int part = 0; part < 4; ++part) value.at[part] = fma_of(parts[j].at[part], weight, value.at[part]);
        }
      }
      share.values.set(h * Share::kHeadFours + i % kFours, value);
    }
    barrier();
  }
  /// Writes the output, or leaves the worker's share, which the last worker merges with the others'. After a barrier.
  FORGE_DEVICE static void finish(const Args& args, const Job& job, Share& share) {
    if (C::kWorkers > 1 && job.workers > 1) {
      const int number = job.t * kJobs + job.part, group = job.worker / kMerged, first = group * kMerged;
      const int left = job.workers - first, of_group = left < kMerged ? left : kMerged;
      const int groups = ceil_div(job.workers, kMerged);
      u32* counters = args.counters + static_cast<u64>(number) * kCounters;
      float* partials = args.scratch + static_cast<u64>(number) * C::kWorkers * kGroup * kPartial;
      const auto partial = [&](int worker) { return partials + static_cast<u64>(worker) * kGroup * kPartial; };
      write_partial(share, partial(job.worker));
      u32* arrivals = kGroups > 1 ? counters + 1 + group : counters;
      if (of_group > 1) {
        if (!last_arrival(arrivals, static_cast<u32>(of_group), share.flag)) return;
        merge(partial(first), 1, of_group, share);
        if (kGroups > 1 && groups > 1) write_partial(share, partial(first));
      }
      if (kGroups > 1 && groups > 1) {
        if (!last_arrival(counters, static_cast<u32>(groups), share.flag)) return;
        merge(partials, kMerged, groups, share);
      }
    }
    write_job(args, job, share);
  }
};

}  // namespace forge::gpu
