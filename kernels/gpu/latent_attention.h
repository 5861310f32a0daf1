#pragma once
// Attention on latents for single rows of a step without matrix instructions; what it shares with latent_head_tiles.h
// is in latent_row.h. A block computes kGroup heads of one row.
//
// Work split. The context is cut into chunks of 16 tokens. For each chunk the block's threads
//
//   1. stage its rows in shared memory, once for all heads, while the next chunk's are on their way to registers;
//   2. compute the scores: 32 lanes have a head, two of them a token, each with half of the columns;
//   3. add the weighted values: a thread has 8 columns of some heads, whose sums stay in registers.
//
// The softmax is online, as in attention.h.

#include "kernels/gpu/latent_row.h"

namespace forge::gpu {

template <class C>
struct LatentAttention : LatentRow<C, 16> {
  using Row = LatentRow<C, 16>;
  using Row::kThreads, Row::kChunk, Row::kGroup, Row::kRow, Row::kUnits, Row::kValueUnits, Row::kStride, Row::kLoads,
      Row::kLowest, Row::kLog2E, Row::kSparse;
  using typename Row::Args, typename Row::Job, typename Row::Share, typename Row::Slots;
  static constexpr int kTokenLanes = 2, kHeadLanes = kChunk * kTokenLanes;
  static constexpr int kHalf = ceil_div(kUnits, kTokenLanes);  ///< units of a row that a lane multiplies
  static_assert(C::kHeads % kGroup == 0 && kGroup * kHeadLanes <= kThreads && kValueUnits <= kThreads,
                "a block needs 32 lanes for each of its heads, and a thread for each unit of the values");

  /// Groups of threads that have different heads of the same values: as many as the threads allow.
  FORGE_DEVICE static constexpr int head_groups() {
    int groups = 1;
    for (int n = 2; n <= kGroup; ++n)
      if (kGroup % n == 0 && n * kValueUnits <= kThreads) groups = n;
    return groups;
  }
  static constexpr int kHeadGroups = head_groups(), kHeadsOfThread = kGroup / kHeadGroups;

  struct Work {
    Shared<U32x4, kChunk * kStride> rows;
    Shared<F32x4, kGroup * kRow / 4> query;  ///< [kGroup][kRow]
    Shared<float, kGroup * kChunk> weights;
    Shared<float, kGroup> keeps;
    Slots slots;
  };
  union Lds {
    Work work;
    Share share;  ///< after the last chunk
  };
  using Part = Elements<F16>;

  FORGE_DEVICE static void load_rows(const Args& args, const Job& job, int n, const Work& lds, U32x4 (&out)[kLoads]) {
    const int token0 = (job.worker + n * job.workers) * kChunk;
    Row::each_unit(args, job, n, kSparse ? 0 : Row::slot_of(job, token0), lds.slots,
                   [&](int i, bool, int, const u16* from, bool real) {
                     out[i] = U32x4{};
                     if (real) out[i] = load16(from);
                   });
  }
  FORGE_DEVICE static void store_rows(Work& lds, const U32x4 (&staged)[kLoads]) {
    FORGE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kThreads + thread_id();
      if (at < kChunk * kUnits) lds.rows.set(at / kUnits * kStride + at % kUnits, staged[i]);
    }
  }
  FORGE_DEVICE static void load_query(const Args& args, const Job& job, Work& lds) {
    const float* from = args.q + Row::query_at(job.t, job.head0);
    for (int i = thread_id(); i < kGroup * kRow / 4; i += kThreads)
      lds.query.set(i, __builtin_bit_cast(F32x4, load16(from + i * 4)));
  }

  /// The lane's part of its head's online softmax. The two lanes of a token have the same numbers.
  struct Softmax {
    float maximum = kLowest, sum = 0;
  };
  /// Writes the weights of a chunk's tokens for all heads, and the factors of what has been summed so far. Threads
  /// beyond the heads repeat the last one's and write nothing.
  FORGE_DEVICE static void add_scores(const Job& job, int chunk, Work& lds, Softmax& state) {
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
  FORGE_DEVICE static void add_values(const Work& lds, Part (&values)[kHeadsOfThread]) {
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
  /// Writes the worker's share. Ends with a barrier.
  FORGE_DEVICE static void store_share(Share& share, const Softmax& state, const Part (&values)[kHeadsOfThread]) {
    barrier();
    if (has_values()) {
      FORGE_UNROLL
      for (int h = 0; h < kHeadsOfThread; ++h) {
        FORGE_UNROLL
        for (int part = 0; part < 2; ++part) {
          const float* at = values[h].at + part * 4;
          share.values.set(head_of(h) * Share::kHeadFours + thread_id() % kValueUnits * 2 + part,
                           F32x4{{at[0], at[1], at[2], at[3]}});
        }
      }
    }
    Row::template store_softmax<kHeadLanes>(share, state.maximum, thread_id() % kTokenLanes == 0 ? state.sum : 0.0f);
    barrier();
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    run_block(args, lds, block_id());
  }
  /// Runs block `id` of kBlocks.
  FORGE_DEVICE static void run_block(const Args& args, Lds& lds, int id) {
    Job job;
    if (!Row::find_job(args, id, job)) return;
    load_query(args, job, lds.work);
    if (kSparse && job.worker < job.end) Row::find_rows(job, job.worker, lds.work.slots);
    U32x4 staged[kLoads];
    if (job.worker < job.end) load_rows(args, job, 0, lds.work, staged);
    Softmax state;
    Part values[kHeadsOfThread] = {};
    int n = 0;
    FORGE_LOOP
    for (int chunk = job.worker; chunk < job.end; chunk += job.workers) {
      barrier();
      store_rows(lds.work, staged);
      barrier();
      if (chunk + job.workers < job.end) {
        ++n;
        if (kSparse && n % Row::kFoundChunks == 0) Row::find_rows(job, chunk + job.workers, lds.work.slots);
        load_rows(args, job, n, lds.work, staged);
      }
      add_scores(job, chunk, lds.work, state);
      barrier();
      add_values(lds.work, values);
    }
    store_share(lds.share, state, values);
    Row::finish(args, job, lds.share);
  }
};

}  // namespace forge::gpu
