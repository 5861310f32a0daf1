#pragma once
// Attention on latents (multi-head latent attention, DeepSeek-V2: arXiv 2405.04434) over a paged f16 pool with one row
// for each token, which all heads share: its kRow columns are the key, and the first kValueDim of them the value. Rows
// of a step are ragged: each row t has its own sequence and position. A block computes kGroup heads of one row t.
//
// Work split. The context is cut into chunks of 16 tokens. For each chunk the block's threads
//
//   1. stage its rows in shared memory, once for all heads, while the next chunk's are on their way to registers;
//   2. compute the scores: 32 lanes have a head, two of them a token, each with half of the columns;
//   3. add the weighted values: a thread has 8 columns of some heads, whose sums stay in registers.
//
// The softmax is online, as in attention.h, and long contexts are shared by workers in the same way: the last of them
// to finish merges their partial results in the workers' order.
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
  static constexpr int kTokensPerWorker = 256;  ///< least tokens of a worker before another one is used
  static constexpr int kQueryFloats = 0;        ///< floats from row to row of q; 0: kHeads * kRow
  static constexpr int kSelected = 0;           ///< sparse attention: entries of a row's list of blocks; 0: off
  static constexpr int kSelectedBlock = 1;      ///< positions of such a block
  static constexpr bool kStored = true;         ///< out is written in f32
  static constexpr int kFormat = 0;             ///< format of the row that matmuls read (activations.h); 0: none
};

template <class C>
struct LatentAttention {
  using Pool = typename C::Pool;
  static constexpr int kRow = Pool::kHeadDim, kValueDim = C::kValueDim, kGroup = C::kHeadsPerBlock;
  static constexpr bool kShared = true;  ///< values are the first columns of keys
  static constexpr int kThreads = C::kWaves * kWave, kChunk = 16, kTokenLanes = 2, kHeadLanes = kChunk * kTokenLanes;
  static constexpr int kUnits = kRow / 8, kValueUnits = kValueDim / 8;  ///< of 16 bytes
  static constexpr int kHalf = ceil_div(kUnits, kTokenLanes);           ///< units of a row that a lane multiplies
  static constexpr int kStride = kUnits | 1;  ///< units from row to row in shared memory; odd, against bank conflicts
  static constexpr int kLoads = ceil_div(kChunk * kUnits, kThreads);  ///< units that a thread stages
  static constexpr int kJobs = C::kHeads / kGroup, kBlocks = C::kTokensTotal * kJobs * C::kWorkers;
  static constexpr int kColumns = C::kHeads * kValueDim;
  static constexpr int kPartial = kValueDim + 4;  ///< of a head: values, maximum, sum, and two that keep 16 bytes
  static constexpr int kChunksPerWorker = at_least_one(C::kTokensPerWorker / kChunk);
  static constexpr float kLowest = -1e30f, kLog2E = 1.44269504088896f;
  static constexpr bool kSparse = C::kSelected > 0;
  static constexpr int kFoundChunks = 16;  ///< chunks whose rows are looked up at once, with kSparse
  static_assert(Pool::kKvHeads == 1 && kRow % 8 == 0 && kValueDim % (C::kFormat > 0 ? 16 : 8) == 0 && kValueDim <= kRow,
                "rows are those of one head, whole units wide, and quantised values whole blocks");
  static_assert(C::kHeads % kGroup == 0 && kGroup * kHeadLanes <= kThreads && kValueUnits <= kThreads,
                "a block needs 32 lanes for each of its heads, and a thread for each unit of the values");
  static_assert(Pool::kBlockTokens % kChunk == 0, "a chunk lies within one block of the pool");

  /// Groups of threads that have different heads of the same values: as many as the threads allow.
  FORGE_DEVICE static constexpr int head_groups() {
    int groups = 1;
    for (int n = 2; n <= kGroup; ++n)
      if (kGroup % n == 0 && n * kValueUnits <= kThreads) groups = n;
    return groups;
  }
  static constexpr int kHeadGroups = head_groups(), kHeadsOfThread = kGroup / kHeadGroups;

  struct Lds {
    Shared<U32x4, kChunk * kStride> rows;
    Shared<F32x4, kGroup * kRow / 4> query;  ///< [kGroup][kRow]; at the end the results, [kGroup][kValueDim]
    Shared<float, kGroup * kChunk> weights;
    Shared<float, kGroup> keeps, maxima, sums;
    Shared<float, kGroup * C::kWorkers> shares;  ///< [kGroup][kWorkers] what a worker's values count in the result
    Shared<u32, 1> flag;
    Shared<i32, kSparse ? kFoundChunks * kChunk : 1> slots;  ///< rows of the pool, with kSparse
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
    u32* counters;   ///< [rows][kJobs], zero before the first use and afterwards; unused with one worker
    float* out;      ///< [rows][kColumns]; written if kStored
    u8* rows;        ///< rows of activations in that format
    const float* sinks;
    const i32* selected;  ///< [rows][kSelected]; read if kSelected > 0
  };
  /// Heads head0 .. head0+kGroup-1 of row t. It sees tokens up to `newest`: its positions, or with kSparse those of
  /// `keys`. table: the block table of its sequence.
  struct Job {
    int t, position, head0, newest;
    const i32* table;
    SelectedKeys<at_least_one(C::kSelected), C::kSelectedBlock> keys;
  };
  using Part = Elements<F16>;

  FORGE_DEVICE static int slot_of(const Job& job, int position) {
    return load(job.table + position / Pool::kBlockTokens) * Pool::kBlockTokens + position % Pool::kBlockTokens;
  }
  /// Looks up the rows of kFoundChunks chunks: `chunk` and every stride-th one after it. With kSparse all threads call
  /// this before they load the first of these chunks. Has two barriers.
  FORGE_DEVICE static void find_rows(const Job& job, int chunk, int stride, Lds& lds) {
    barrier();
    for (int i = thread_id(); i < kFoundChunks * kChunk; i += kThreads) {
      const int token = (chunk + i / kChunk * stride) * kChunk + i % kChunk;
      if (token <= job.newest) lds.slots.set(i, slot_of(job, job.keys.position_of(token)));
    }
    barrier();
  }
  /// Loads the thread's units of the rows of the worker's n-th chunk; zeros for tokens that the row does not see.
  FORGE_DEVICE static void load_rows(const Args& args, const Job& job, int n, int chunk, const Lds& lds,
                                     U32x4 (&out)[kLoads]) {
    const int token0 = chunk * kChunk, slot = kSparse ? 0 : slot_of(job, token0);
    FORGE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kThreads + thread_id(), token = at / kUnits;
      out[i] = U32x4{};
      if (at >= kChunk * kUnits || token0 + token > job.newest) continue;
      const int row = kSparse ? lds.slots.get(n % kFoundChunks * kChunk + token) : slot + token;
      out[i] = load16(args.k + Pool::index(row, 0, at % kUnits * 8));
    }
  }
  FORGE_DEVICE static void store_rows(Lds& lds, const U32x4 (&staged)[kLoads]) {
    FORGE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kThreads + thread_id();
      if (at < kChunk * kUnits) lds.rows.set(at / kUnits * kStride + at % kUnits, staged[i]);
    }
  }
  /// Index of a head's query, in floats.
  FORGE_DEVICE static u64 query_at(int t, int head) {
    constexpr int kFloats = C::kQueryFloats > 0 ? C::kQueryFloats : C::kHeads * kRow;
    return static_cast<u64>(t) * kFloats + head * kRow;
  }
  FORGE_DEVICE static void load_query(const Args& args, const Job& job, Lds& lds) {
    const float* from = args.q + query_at(job.t, job.head0);
    for (int i = thread_id(); i < kGroup * kRow / 4; i += kThreads)
      lds.query.set(i, __builtin_bit_cast(F32x4, load16(from + i * 4)));
  }

  /// The lane's part of its head's online softmax. The two lanes of a token have the same numbers.
  struct Softmax {
    float maximum = kLowest, sum = 0;
  };
  /// Writes the weights of a chunk's tokens for all heads, and the factors of what has been summed so far. Threads
  /// beyond the heads repeat the last one's and write nothing.
  FORGE_DEVICE static void add_scores(const Job& job, int chunk, Lds& lds, Softmax& state) {
    const int own = thread_id() / kHeadLanes, head = own < kGroup ? own : kGroup - 1;
    const int token = thread_id() % kHeadLanes / kTokenLanes, half = thread_id() % kTokenLanes;
    const int begin = half * kHalf, end = begin + kHalf < kUnits ? begin + kHalf : kUnits;
    float dot = 0;
    for (int unit = begin; unit < end; ++unit) {
      const Part key = elements_of<F16>(lds.rows.get(token * kStride + unit));
      FORGE_UNROLL
      for (int part = 0; part < 2; ++part) {
        const F32x4 q = lds.query.get((head * kRow + unit * 8) / 4 + part);
        FORGE_UNROLL
        for (int i = 0; i < 4; ++i) dot = fma_of(q.at[i], key.at[part * 4 + i], dot);
      }
    }
    dot = sum_lanes<kTokenLanes>(dot);
    const bool seen = chunk * kChunk + token <= job.newest;
    const float score = seen ? dot * (C::kScale * kLog2E) : kLowest;
    const float maximum = max_of(state.maximum, max_lanes<kHeadLanes>(score)), keep = exp2_of(state.maximum - maximum);
    const float weight = seen ? exp2_of(score - maximum) : 0.0f;
    state.sum = fma_of(state.sum, keep, weight);
    state.maximum = maximum;
    if (own >= kGroup) return;
    if (half == 0) lds.weights.set(head * kChunk + token, weight);
    if (thread_id() % kHeadLanes == 0) lds.keeps.set(head, keep);
  }

  /// True for threads that have values: unit thread_id() % kValueUnits of heads group * kHeadsOfThread and following.
  FORGE_DEVICE static bool has_values() { return thread_id() < kHeadGroups * kValueUnits; }
  FORGE_DEVICE static int head_of(int h) { return thread_id() / kValueUnits * kHeadsOfThread + h; }
  FORGE_DEVICE static void add_values(const Lds& lds, Part (&values)[kHeadsOfThread]) {
    if (!has_values()) return;
    FORGE_UNROLL
    for (int h = 0; h < kHeadsOfThread; ++h) {
      const float keep = lds.keeps.get(head_of(h));
      FORGE_UNROLL
      for (int i = 0; i < 8; ++i) values[h].at[i] *= keep;
    }
    for (int token = 0; token < kChunk; ++token) {
      const Part row = elements_of<F16>(lds.rows.get(token * kStride + thread_id() % kValueUnits));
      FORGE_UNROLL
      for (int h = 0; h < kHeadsOfThread; ++h) {
        const float weight = lds.weights.get(head_of(h) * kChunk + token);
        FORGE_UNROLL
        for (int i = 0; i < 8; ++i) values[h].at[i] = fma_of(weight, row.at[i], values[h].at[i]);
      }
    }
  }
  /// Writes the sums to shared memory. Ends with a barrier.
  FORGE_DEVICE static void share(Lds& lds, const Softmax& state, const Part (&values)[kHeadsOfThread]) {
    barrier();
    if (has_values()) {
      FORGE_UNROLL
      for (int h = 0; h < kHeadsOfThread; ++h) {
        FORGE_UNROLL
        for (int part = 0; part < 2; ++part) {
          const float* at = values[h].at + part * 4;
          lds.query.set((head_of(h) * kValueDim + thread_id() % kValueUnits * 8) / 4 + part,
                        F32x4{{at[0], at[1], at[2], at[3]}});
        }
      }
    }
    const float sum = sum_lanes<kHeadLanes>(thread_id() % kTokenLanes == 0 ? state.sum : 0.0f);
    const int head = thread_id() / kHeadLanes;
    if (thread_id() % kHeadLanes == 0 && head < kGroup) {
      lds.sums.set(head, sum);
      lds.maxima.set(head, state.maximum);
    }
    barrier();
  }

  /// As Attention::write.
  FORGE_DEVICE static void write(const Args& args, int t, int column, float value, bool real) {
    if constexpr (C::kStored) store(args.out + static_cast<u64>(t) * kColumns + column, value, real);
    if constexpr (C::kFormat > 0) store_activation<kColumns, C::kFormat>(args.rows, t, column, value, real);
  }
  /// Writes the job's output; each(h, dim) computes an element. 16 neighbouring lanes make one quantised block.
  template <class Each>
  FORGE_DEVICE static void write_job(const Args& args, const Job& job, Each&& each) {
    constexpr int kCount = kGroup * kValueDim;
    for (int turn = 0; turn < ceil_div(kCount, kThreads); ++turn) {
      const int i = turn * kThreads + thread_id(), column = job.head0 * kValueDim + i;
      const bool real = i < kCount;
      const float value = each(real ? i / kValueDim : 0, real ? i % kValueDim : 0);
      write(args, job.t, column, value, real);
    }
  }
  FORGE_DEVICE static void write_partial(const Lds& lds, float* partial) {
    for (int i = thread_id(); i < kGroup * kPartial; i += kThreads) {
      const int h = i / kPartial, at = i % kPartial;
      partial[i] = at < kValueDim        ? lds.query.scalar(h * kValueDim + at)
                   : at == kValueDim     ? lds.maxima.get(h)
                   : at == kValueDim + 1 ? lds.sums.get(h)
                                         : 0.0f;
    }
  }
  /// Merges the partial results of `count` workers, in their order, into shared memory: [kGroup][kValueDim], divided.
  /// Thousands of loads would wait one after another, so they are of 16 bytes, and each thread has kTogether in flight.
  /// Ends with a barrier.
  FORGE_DEVICE static void merge(const float* partials, int count, Lds& lds) {
    constexpr int kTogether = C::kWorkers < 8 ? C::kWorkers : 8, kFours = kValueDim / 4;
    const auto of_head = [&](int w, int h) { return partials + (w * kGroup + h) * kPartial; };
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
            const float weight = pass == 1 && first + j < count ? exp2_of(maxima[j] - maximum) : 0.0f;
            sum = fma_of(sums[j], weight, sum);
            if (first + j == own) mine = weight;
          }
        }
      lds.shares.set(h * C::kWorkers + own, sum > 0 ? mine / sum : 0.0f);
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
          const float share = first + j < count ? lds.shares.get(h * C::kWorkers + first + j) : 0.0f;
          FORGE_UNROLL
          for (int part = 0; part < 4; ++part) value.at[part] = fma_of(parts[j].at[part], share, value.at[part]);
        }
      }
      lds.query.set(i, value);
    }
    barrier();
  }

  /// The first position that a row sees.
  FORGE_DEVICE static int oldest_of(int) { return 0; }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    run_block(args, lds, block_id());
  }
  /// Runs block `id` of kBlocks: [rows][kJobs][kWorkers].
  FORGE_DEVICE static void run_block(const Args& args, Lds& lds, int id) {
    const int t = id / (kJobs * C::kWorkers), part = id / C::kWorkers % kJobs, worker = id % C::kWorkers;
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const int position = uniform(load(args.positions + t));
    const int sequence = position < 0 ? 0 : load(args.sequences + t);
    Job job{t, position, part * kGroup, position, args.tables + static_cast<u64>(sequence) * C::kTableBlocks, {}};
    if constexpr (kSparse) {
      wait_for_producer();
      job.keys = {args.selected + static_cast<u64>(t) * C::kSelected};
      job.newest = uniform(job.keys.tokens(position)) - 1;
    }
    const int end = job.newest < 0 ? 0 : job.newest / kChunk + 1, wanted = ceil_div(end, kChunksPerWorker);
    const int workers = wanted < 1 ? 1 : wanted < C::kWorkers ? wanted : C::kWorkers;
    if (worker >= workers) return;
    if constexpr (!kSparse) wait_for_producer();
    load_query(args, job, lds);
    if (kSparse && worker < end) find_rows(job, worker, workers, lds);
    U32x4 staged[kLoads];
    if (worker < end) load_rows(args, job, 0, worker, lds, staged);
    Softmax state;
    Part values[kHeadsOfThread] = {};
    int n = 0;
    FORGE_LOOP
    for (int chunk = worker; chunk < end; chunk += workers) {
      barrier();
      store_rows(lds, staged);
      barrier();
      if (chunk + workers < end) {
        ++n;
        if (kSparse && n % kFoundChunks == 0) find_rows(job, chunk + workers, workers, lds);
        load_rows(args, job, n, chunk + workers, lds, staged);
      }
      add_scores(job, chunk, lds, state);
      barrier();
      add_values(lds, values);
    }
    share(lds, state, values);
    if (C::kWorkers > 1 && workers > 1) {
      float* partials = args.scratch + (static_cast<u64>(t) * kJobs + part) * C::kWorkers * kGroup * kPartial;
      write_partial(lds, partials + static_cast<u64>(worker) * kGroup * kPartial);
      if (!last_arrival(args.counters + t * kJobs + part, static_cast<u32>(workers), lds.flag)) return;
      merge(partials, workers, lds);
      write_job(args, job, [&](int h, int dim) { return lds.query.scalar(h * kValueDim + dim); });
    } else {
      write_job(args, job, [&](int h, int dim) {
        const float sum = lds.sums.get(h);
        return sum > 0 ? lds.query.scalar(h * kValueDim + dim) / sum : 0.0f;
      });
    }
  }
};

}  // namespace forge::gpu
