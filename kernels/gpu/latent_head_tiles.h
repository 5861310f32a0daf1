#pragma once
// Attention on latents for single rows of a step by matrix instructions: the rows of a tile are the heads, which share
// the context's rows. A block computes kGroup heads, whole tiles, of one row of the step (latent_row.h). For each chunk
// of 32 tokens:
//
//   rows       global -> shared memory, [token][kStride] units; with asynchronous copies one chunk ahead
//   scores     = Q [heads][kRow] * rows^T      each wave multiplies its slabs of 32 columns; queries in registers
//   weights    the waves' partial scores meet in shared memory; online softmax; F16 (attention_tiles.h: kRaise)
//   out        = out * keep + weights * values a wave has its columns of all heads, in registers
//
// For the last product Bt is [dimension][token], but rows lie by tokens. A lane takes whole units, of eight dimensions,
// of the tokens that its fragment has, and makes from them the fragments of eight tiles: tile j has dimension 8 * n + j
// in column n. If waves are more than groups of eight tiles, two share a group, four tiles each:
//
//   tile 0, column n    token of the unit    0       1       2       3
//   word 0                                   dim 8n  dim 8n
//   word 1                                                   dim 8n  dim 8n

#include "kernels/gpu/latent_row.h"
#include "kernels/gpu/matrix_tile.h"

namespace forge::gpu {

/// Defaults. A configuration derives from this and names what LatentAttentionDefaults needs. kHeadsPerBlock is a
/// multiple of 16; the last block of a row may have fewer.
struct LatentHeadTilesDefaults : LatentAttentionDefaults {
  using Tile = NativeTile;
  static constexpr int kStages = 1;  ///< chunks in shared memory; 1: the next one is in registers
};

template <class C>
struct LatentHeadTiles : LatentRow<C, 32> {
  using Row = LatentRow<C, 32>;
  using T = typename C::Tile;
  using Row::kThreads, Row::kChunk, Row::kGroup, Row::kRow, Row::kUnits, Row::kValueUnits, Row::kStride, Row::kLoads,
      Row::kLowest, Row::kLog2E, Row::kSparse;
  using typename Row::Args, typename Row::Job, typename Row::Share, typename Row::Slots;
  static constexpr int kSlab = 32, kSlabs = kRow / kSlab, kSlabsOfWave = ceil_div(kSlabs, C::kWaves);
  static constexpr int kScoreWaves = ceil_div(kSlabs, kSlabsOfWave);  ///< waves that have slabs
  static constexpr int kHeadTiles = kGroup / T::kM, kTokenTiles = kChunk / T::kN;
  static constexpr int kStages = C::kStages;
  static constexpr bool kCopies = kStages > 1;
  static constexpr int kSums = T::Fragments::kC;
  static constexpr float kRaise = 10;  ///< as in attention_tiles.h
  // Values: groups of eight tiles, or halves of them.
  static constexpr int kValueGroups = ceil_div(kValueUnits, T::kN);
  /// Waves that share a group. On gfx11, where a lane has 16 tokens, whole units would take too many registers.
  static constexpr int kSharers = C::kWaves >= 2 * kValueGroups || T::kBUnits > 2 ? 2 : 1;
  static constexpr int kTilesOfGroup = 8 / kSharers;  ///< of a wave
  static constexpr int kGroupsOfWave = ceil_div(kValueGroups * kSharers, C::kWaves);
  /// Lanes that share a head's softmax, each with kTokensOfLane neighbouring tokens: at most 16.
  FORGE_DEVICE static constexpr int head_lanes() {
    int lanes = 16;
    while (lanes * kGroup > kThreads) lanes /= 2;
    return lanes;
  }
  static constexpr int kHeadLanes = head_lanes(), kTokensOfLane = kChunk / kHeadLanes;
  static constexpr int kScoreStride = kChunk + 4;  ///< floats from head to head; padded against bank conflicts
  static_assert(T::kM == 16 && T::kLanes == kWave && T::kF16,
                "the tile must be f16, 16 rows high and of this wave size");
  static_assert(kGroup % T::kM == 0 && kRow % kSlab == 0, "heads are whole tiles and rows whole slabs of 32 columns");
  static_assert(kStages == 1 || (kStages == 2 && kAsyncCopies), "two stages need asynchronous copies");
  static_assert(kHeadLanes >= 4, "a lane has at most eight tokens of a head");

  struct Work {
    Shared<U32x4, kStages * kChunk * kStride> rows;
    Shared<float, kScoreWaves * kGroup * kScoreStride> scores;  ///< [wave][head][token]
    Shared<U32x4, kGroup * kUnitsOfRow> weights;                ///< [head][token], as unit_place() has it
    Shared<float, kGroup> keeps;
    Slots slots;
  };
  union Lds {
    Work work;
    Share share;  ///< after the last chunk
  };
  using Query = U32x4[kHeadTiles][kSlabsOfWave][T::kAUnits];
  using Scores = float[kHeadTiles][kTokenTiles][kSums];
  using Values = float[kHeadTiles][kGroupsOfWave][kTilesOfGroup][kSums];
  /// The lane's part of the online softmax of head thread_id() / kHeadLanes; threads beyond the heads repeat the last
  /// one's and write nothing. `sum` is of the lane's own tokens.
  struct Softmax {
    float maximum = kLowest, sum = 0;
  };

  FORGE_DEVICE static bool has_slab(int slab) { return kSlabs % C::kWaves == 0 || slab < kSlabs; }
  /// Loads the wave's slabs of all heads' queries, times the scale. Heads that do not exist are zeros.
  FORGE_DEVICE static void load_query(const Args& args, const Job& job, Query& query) {
    constexpr float kFactor = C::kScale * kLog2E;
    FORGE_UNROLL
    for (int m = 0; m < kHeadTiles; ++m) {
      FORGE_UNROLL
      for (int s = 0; s < kSlabsOfWave; ++s) {
        const int slab = wave_id() * kSlabsOfWave + s;
        make_a<T>(
            [&](int row, int unit, int word) {
              const int head = job.head0 + m * T::kM + row;
              if (head >= C::kHeads || !has_slab(slab)) return 0u;
              const U32x2 two = load8(args.q + Row::query_at(job.t, head) + slab * kSlab + unit * 8 + word * 2);
              return F16::pair(__builtin_bit_cast(float, two.at[0]) * kFactor,
                               __builtin_bit_cast(float, two.at[1]) * kFactor);
            },
            query[m][s]);
      }
    }
  }

  /// Stages the worker's n-th chunk: with asynchronous copies in shared memory, else in registers.
  FORGE_DEVICE static void load_rows(const Args& args, const Job& job, int n, int slot, Work& lds,
                                     U32x4 (&staged)[kCopies ? 1 : kLoads]) {
    Row::each_unit(args, job, n, slot, lds.slots, [&](int i, bool exists, int place, const u16* from, bool real) {
      if constexpr (kCopies) {
        if (exists) lds.rows.copy16(n % kStages * kChunk * kStride + place, from, real);
      } else {
        staged[i] = U32x4{};
        if (real) staged[i] = load16(from);
      }
    });
    commit_copies();
  }
  FORGE_DEVICE static void store_rows(Work& lds, const U32x4 (&staged)[kCopies ? 1 : kLoads]) {
    if constexpr (!kCopies) {
      FORGE_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const int at = i * kThreads + thread_id();
        if (at < kChunk * kUnits) lds.rows.set(at / kUnits * kStride + at % kUnits, staged[i]);
      }
    }
  }

  /// Multiplies the wave's slabs and stores its partial scores. rows: index of the chunk's first row.
  FORGE_DEVICE static void multiply_keys(const Query& query, int rows, Work& lds) {
    if (wave_id() >= kScoreWaves) return;
    const int lane = lane_id();
    Scores scores = {};
    FORGE_UNROLL
    for (int s = 0; s < kSlabsOfWave; ++s) {
      const int slab = wave_id() * kSlabsOfWave + s;
      if (!has_slab(slab)) continue;
      FORGE_UNROLL
      for (int n = 0; n < kTokenTiles; ++n) {
        U32x4 b[T::kBUnits];
        FORGE_UNROLL
        for (int j = 0; j < T::kBUnits; ++j)
          b[j] = fetch_unit<T>(lds.rows, rows + (n * T::kN + T::b_unit_row(lane, j)) * kStride + slab * kUnitsOfRow +
                                             T::b_unit(lane, j));
        FORGE_UNROLL
        for (int m = 0; m < kHeadTiles; ++m) {
          FORGE_UNROLL
          for (int half = 0; half < kHalves; ++half) multiply_half<T>(half, query[m][s], b, scores[m][n]);
        }
        keep_schedule();
      }
    }
    FORGE_UNROLL
    for (int m = 0; m < kHeadTiles; ++m) {
      FORGE_UNROLL
      for (int n = 0; n < kTokenTiles; ++n) {
        FORGE_UNROLL
        for (int i = 0; i < kSums; ++i)
          lds.scores.set(
              (wave_id() * kGroup + m * T::kM + T::c_row(lane, i)) * kScoreStride + n * T::kN + T::c_column(lane, i),
              scores[m][n][i]);
      }
    }
  }
  /// Adds up the partial scores, in the order of the waves, and writes the weights and the factors of what has been
  /// summed so far.
  FORGE_DEVICE static void update_weights(const Job& job, int chunk, Work& lds, Softmax& state) {
    const int own = thread_id() / kHeadLanes, head = own < kGroup ? own : kGroup - 1;
    const int token0 = thread_id() % kHeadLanes * kTokensOfLane;
    float scores[kTokensOfLane] = {}, maximum = state.maximum;
    FORGE_UNROLL
    for (int w = 0; w < kScoreWaves; ++w) {
      FORGE_UNROLL
      for (int i = 0; i < kTokensOfLane; ++i)
        scores[i] += lds.scores.get((w * kGroup + head) * kScoreStride + token0 + i);
    }
    float most = kLowest;
    FORGE_UNROLL
    for (int i = 0; i < kTokensOfLane; ++i) {
      if (chunk * kChunk + token0 + i > job.newest) scores[i] = 2 * kLowest;  // its weight is 0
      most = max_of(most, scores[i]);
    }
    maximum = max_of(maximum, max_lanes<kHeadLanes>(most));
    const float keep = exp2_of(state.maximum - maximum);
    state.maximum = maximum;
    state.sum *= keep;
    FORGE_UNROLL
    for (int i = 0; i < kTokensOfLane; i += 2) {
      const float low = exp2_of(scores[i] - maximum + kRaise), high = exp2_of(scores[i + 1] - maximum + kRaise);
      state.sum += low + high;
      const int token = token0 + i, tile = head / T::kM * T::kM * kUnitsOfRow;
      if (own < kGroup)
        lds.weights.set_word((tile + unit_place(head % T::kM, token / 8)) * 4 + token % 8 / 2, f16_pair(low, high));
    }
    if (thread_id() % kHeadLanes == 0 && own < kGroup) lds.keeps.set(head, keep);
  }

  /// The group of tiles that is number g of the wave, and the first of its tiles.
  FORGE_DEVICE static int group_of(int g) { return (wave_id() + g * C::kWaves) / kSharers; }
  FORGE_DEVICE static int tile0() { return wave_id() % kSharers * kTilesOfGroup; }
  FORGE_DEVICE static bool has_group(int group) {
    return kValueGroups * kSharers % C::kWaves == 0 || group < kValueGroups;
  }
  /// The unit of the values in the lane's column n, or the last one for columns that do not exist.
  FORGE_DEVICE static int unit_of(int group, int n) {
    const int unit = group * T::kN + n;
    return kValueUnits % T::kN == 0 || unit < kValueUnits ? unit : kValueUnits - 1;
  }
  /// Words of a unit that has eight dimensions, or with kSharers 2 of the wave's half.
  struct Dims {
    u32 at[kTilesOfGroup / 2];
  };
  FORGE_DEVICE static Dims dims_of(const Work& lds, int unit) {
    Dims out;
    if constexpr (kSharers == 1) {
      const U32x4 words = lds.rows.get(unit);
      FORGE_UNROLL
      for (int w = 0; w < 4; ++w) out.at[w] = words.at[w];
    } else {
      const U32x2 words = lds.rows.half_of(unit, wave_id() % kSharers);
      FORGE_UNROLL
      for (int w = 0; w < 2; ++w) out.at[w] = words.at[w];
    }
    return out;
  }
  FORGE_DEVICE static void add_values(int rows, const Work& lds, Values& values) {
    const int lane = lane_id(), n = T::b_row(lane, 0);
    FORGE_UNROLL
    for (int m = 0; m < kHeadTiles; ++m) {
      FORGE_UNROLL
      for (int i = 0; i < kSums; ++i) {
        const float keep = lds.keeps.get(m * T::kM + T::c_row(lane, i));
        FORGE_UNROLL
        for (int g = 0; g < kGroupsOfWave; ++g) {
          FORGE_UNROLL
          for (int j = 0; j < kTilesOfGroup; ++j) values[m][g][j][i] *= keep;
        }
      }
    }
    U32x4 a[kHeadTiles][T::kAUnits];
    FORGE_UNROLL
    for (int m = 0; m < kHeadTiles; ++m) fetch_a<T>(lds.weights, m * T::kM * kUnitsOfRow, a[m]);
    FORGE_UNROLL
    for (int g = 0; g < kGroupsOfWave; ++g) {
      const int group = group_of(g);
      if (!has_group(group)) continue;
      const int unit = rows + unit_of(group, n);
      FORGE_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        constexpr int kTokens = T::Fragments::kB;
        Dims dims[kTokens];
        FORGE_UNROLL
        for (int i = 0; i < kTokens; ++i) dims[i] = dims_of(lds, unit + column_of_b<T>(lane, half, i) * kStride);
        FORGE_UNROLL
        for (int j = 0; j < kTilesOfGroup; ++j) {
          u32 b[kTokens / 2];
          FORGE_UNROLL
          for (int w = 0; w < kTokens / 2; ++w)
            b[w] = (j % 2 == 0 ? low_halves : high_halves)(dims[2 * w].at[j / 2], dims[2 * w + 1].at[j / 2]);
          FORGE_UNROLL
          for (int m = 0; m < kHeadTiles; ++m) multiply_words<T>(half, a[m], b, values[m][g][j]);
        }
        keep_schedule();
      }
    }
  }

  /// Writes the worker's share. Ends with a barrier.
  FORGE_DEVICE static void store_share(Share& share, const Softmax& state, const Values& values) {
    barrier();
    const int lane = lane_id();
    FORGE_UNROLL
    for (int m = 0; m < kHeadTiles; ++m) {
      FORGE_UNROLL
      for (int g = 0; g < kGroupsOfWave; ++g) {
        FORGE_UNROLL
        for (int i = 0; i < kSums; ++i) {
          const int group = group_of(g), unit = group * T::kN + T::c_column(lane, i);
          if (!has_group(group) || unit >= kValueUnits) continue;
          FORGE_UNROLL
          for (int j = 0; j < kTilesOfGroup; j += 4) {
            const auto& v = values[m][g];
            share.values.set((m * T::kM + T::c_row(lane, i)) * Share::kHeadFours + unit * 2 + (tile0() + j) / 4,
                             F32x4{{v[j][i], v[j + 1][i], v[j + 2][i], v[j + 3][i]}});
          }
        }
      }
    }
    Row::template store_softmax<kHeadLanes>(share, state.maximum, state.sum);
    barrier();
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    run_block(args, lds, block_id());
  }
  /// The slot of the first token of the worker's n-th chunk, if there is one.
  FORGE_DEVICE static int slot_of_chunk(const Job& job, int n) {
    const int chunk = job.worker + n * job.workers;
    return kSparse || chunk >= job.end ? 0 : Row::slot_of(job, chunk * kChunk);
  }
  /// Runs block `id` of kBlocks. The slot of a chunk is loaded one chunk before its rows, which wait for it.
  FORGE_DEVICE static void run_block(const Args& args, Lds& lds, int id) {
    Job job;
    if (!Row::find_job(args, id, job)) return;
    Work& work = lds.work;
    U32x4 staged[kCopies ? 1 : kLoads];
    if (kSparse && job.worker < job.end) Row::find_rows(job, job.worker, work.slots);
    if (job.worker < job.end) load_rows(args, job, 0, slot_of_chunk(job, 0), work, staged);
    int slot = slot_of_chunk(job, 1);
    Query query;
    load_query(args, job, query);
    Softmax state;
    Values values = {};
    int n = 0;
    FORGE_LOOP
    for (int chunk = job.worker; chunk < job.end; chunk += job.workers) {
      const int rows = n % kStages * kChunk * kStride;
      wait_copies_but<0>();
      if constexpr (!kCopies) {
        barrier();
        store_rows(work, staged);
      }
      barrier();
      if (chunk + job.workers < job.end) {
        ++n;
        if (kSparse && n % Row::kFoundChunks == 0) Row::find_rows(job, chunk + job.workers, work.slots);
        load_rows(args, job, n, slot, work, staged);
        slot = slot_of_chunk(job, n + 1);
      }
      keep_schedule();
      multiply_keys(query, rows, work);
      barrier();
      update_weights(job, chunk, work, state);
      barrier();
      add_values(rows, work, values);
    }
    store_share(lds.share, state, values);
    Row::finish(args, job, lds.share);
  }
};

}  // namespace forge::gpu
