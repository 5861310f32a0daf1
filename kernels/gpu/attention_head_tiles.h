#pragma once
// Decode attention over the paged KV pool by matrix instructions, for KV heads that several query heads share: the
// columns of a tile are those heads. The work of a block and its end: attention_row.h. A chunk is kChunkTiles tiles of
// 16 tokens, and a wave computes for it
//
//   scores     = K [tokens][dims] * Q^T [dims][heads]        rows of the tile: tokens
//   weights    online softmax (attention.h has it) over the tokens of a column; F16, raised by 2^kRaise
//   values^T  += V^T [dims][tokens] * weights [tokens][heads]   rows of the tile: dimensions
//
// Both results have heads in columns, so a lane keeps the maxima, sums and factors of its own heads only. Keys and
// values go from memory to registers in whole units and stay there: the instruction's columns of k are permuted.
//
// Keys: a lane has kRowsOfA rows of a tile, and kGroups lanes share them, whose units alternate. Its tokens of all
// tiles of a chunk follow each other, so that their scales are one load. NVIDIA, two tiles, head_dim 64 in f16:
//
//   lane            0       1       2       3       4 ...         tile 0   rows q, q + 8: tokens 4q, 4q + 1
//   tokens          0 .. 3  0 .. 3  0 .. 3  0 .. 3  4 .. 7        tile 1   rows q, q + 8: tokens 4q + 2, 4q + 3
//   units of each   0, 4    1, 5    2, 6    3, 7    0, 4
//
// Values: the lanes that hold the rows q and q + 8 of A have every kSlots-th piece (up to 16 bytes) of the values of
// their tokens of k. A word of a piece gives the words of several tiles, by pairing its elements with those of the next
// token:
//
//   element e of piece n    tile (n * kPieceDims + e) / kRowsOfA, the lane's row number e % kRowsOfA
//
// A tile's keys of the next chunk are loaded when those of this one are multiplied, its values likewise, and the entry
// of the block table one chunk earlier. Of types without scales, tokens that are not seen are loaded from the row of
// one that is: their weights are zeros, which NaN would survive.

#include "kernels/gpu/head_queries.h"

namespace forge::gpu {

template <class C>
struct AttentionHeadTiles : HeadQueries<C> {
  using Base = HeadQueries<C>;
  using Row = typename Base::Row;
  using T = typename C::Tile;
  using Base::kColumnTiles, Base::kGroups, Base::kRun, Base::kRunWords, Base::kTerms, Base::kUnits, Base::kUnitWords,
      Base::kUnitsOfRun, Base::kKeyUnits, Base::kKeysPadded;
  using Row::kGroup, Row::kHeadDim, Row::kLog2E, Row::kLowest, Row::kUnit, Row::kValueDim;
  using typename Base::Lds, typename Base::Query;
  using typename Row::Args, typename Row::Format, typename Row::Job, typename Row::Pool, typename Row::Share;
  static constexpr int kTiles = C::kChunkTiles;
  static constexpr int kChunk = T::kM * kTiles, kSums = T::Fragments::kC;
  static constexpr int kHeadsOfLane = T::kPairsInRow ? 2 : 1;  ///< columns of a tile of sums
  static constexpr float kRaise = 10;                          ///< as in attention_tiles.h
  static constexpr int kRows = T::kRowsOfA, kSlots = T::kM / kRows;
  static_assert(T::kM == 16 && T::kLanes == kWave && T::kF16 && T::kK == T::kM,
                "the tile must be f16, 16 rows and 16 columns of k, and of this wave size");
  static_assert(!Row::kSparse, "positions are not selected");
  static_assert(Pool::kBlockTokens % kChunk == 0, "a chunk must lie in one block of the pool");
  static constexpr int kKeyTokens = kRows * kTiles, kValueTokens = kRun * kTiles;  ///< of a lane
  // Values: pieces of a lane.
  static constexpr int kWordDims = 4 * kUnit / Format::kUnitBytes;
  static constexpr int piece_words(int most) {
    return most > ceil_div(4, kWordDims) && most * kWordDims * kSlots > kValueDim ? piece_words(most / 2) : most;
  }
  static constexpr int kPieceWords = piece_words(4), kPieceBytes = kPieceWords * 4,
                       kPieceDims = kPieceWords * kWordDims;
  static constexpr int kAllPieces = kValueDim / kPieceDims, kPieces = ceil_div(kAllPieces, kSlots);
  static constexpr int kValueTiles = kPieces * kPieceDims / kRows;
  /// A lane's part of a chunk's keys. scales: of its tokens in pairs.
  struct Keys {
    typename Format::Packed units[kTiles][kRows][kKeyUnits];
    u32 scales[kKeyUnits][ceil_div(kKeyTokens, 2)];
  };
  struct Values {
    u32 words[kTiles][kRun][kPieces][kPieceWords];
    u32 scales[kPieces][kValueTokens / 2];
  };
  /// A lane's part of its wave's online softmax. maximum: less kRaise.
  struct State {
    float values[kValueTiles][kColumnTiles][kSums];
    float maximum[kColumnTiles][kHeadsOfLane], sum[kColumnTiles][kHeadsOfLane];
  };
  using Scores = float[kTiles][kColumnTiles][kSums];
  using Weights = u32[kTiles][kColumnTiles][kTerms][T::Fragments::kB / 2];
  /// A chunk: the row of its first token in the pools, and which of its tokens are seen, from .. to (may lie outside).
  struct Place {
    u64 row;
    int from, to;
    [[nodiscard]] FORGE_DEVICE bool is_whole() const { return from <= 0 && to >= kChunk - 1; }
    [[nodiscard]] FORGE_DEVICE bool sees(int token) const { return token >= from && token <= to; }
    /// The token, or the nearest one that is seen.
    [[nodiscard]] FORGE_DEVICE int seen(int token) const { return token < from ? from : token > to ? to : token; }
  };

  /// The token of a chunk that is row `row` of tile `tile`.
  FORGE_DEVICE static constexpr int token_of(int tile, int row) {
    return row % kSlots * kKeyTokens + tile * kRows + row / kSlots;
  }
  /// The lane's i-th token of a tile of values, of the kValueTokens from value_token0() on.
  FORGE_DEVICE static constexpr int value_token(int tile, int i) { return token_of(tile, T::b_k(0, i)); }
  FORGE_DEVICE static int value_token0() { return T::group(lane_id()) * kValueTokens; }
  FORGE_DEVICE static int slot() { return T::row_of_a(lane_id(), 0); }
  FORGE_DEVICE static int key_unit(int j) {
    const int unit = T::group(lane_id()) + j * kGroups;
    return kKeysPadded && unit >= kUnits ? kUnits - 1 : unit;
  }
  FORGE_DEVICE static int piece(int n) {
    const int at = slot() + n * kSlots;
    return kPieces * kSlots > kAllPieces && at >= kAllPieces ? kAllPieces - 1 : at;
  }
  FORGE_DEVICE static constexpr int head_of(int i) { return T::kPairsInRow ? i % 2 : 0; }

  /// The slot of a chunk's first token in the pools.
  FORGE_DEVICE static int pool_slot(const Job& job, int chunk) {
    const int token = chunk * kChunk;
    return load(job.table + token / Pool::kBlockTokens) * Pool::kBlockTokens + token % Pool::kBlockTokens;
  }
  FORGE_DEVICE static Place place_of(const Job& job, int chunk, int pool_slot, int newest) {
    return {Pool::row(pool_slot, job.kv_head), job.oldest - chunk * kChunk, newest - chunk * kChunk};
  }

  /// The token whose row is loaded for a token. Quants are numbers whatever they are, and neither a score nor a value
  /// of an unseen token comes from its scale, so these need no other row; and without one, addresses are constants
  /// apart.
  FORGE_DEVICE static int loaded(const Place& place, int token) { return Format::kScaled ? token : place.seen(token); }
  /// Keys of tile t, without scales. only: the chunk's token that is loaded; kAll: all of them.
  static constexpr int kAll = -1;
  FORGE_DEVICE static void load_tile_keys(const Args& args, const Place& place, int t, Keys& out, int only = kAll) {
    using Rows = typename Pool::template Rows<kHeadDim>;
    const u8* rows = Rows::at(args.k, place.row, 0);
    FORGE_UNROLL
    for (int h = 0; h < kRows; ++h) {
      const int token = slot() * kKeyTokens + t * kRows + h;
      if (only != kAll && only != token) continue;
      FORGE_UNROLL
      for (int j = 0; j < kKeyUnits; ++j)
        load_packed(rows + loaded(place, token) * Rows::kRowBytes + key_unit(j) * Format::kUnitBytes,
                    out.units[t][h][j]);
    }
  }
  FORGE_DEVICE static void load_tile_values(const Args& args, const Place& place, int t, Values& out, int only = kAll) {
    using Rows = typename Pool::template Rows<kValueDim>;
    const u8* rows = Rows::at(args.v, place.row, 0);
    FORGE_UNROLL
    for (int i = 0; i < kRun; ++i) {
      const int token = value_token0() + value_token(t, i);
      if (only != kAll && only != token) continue;
      FORGE_UNROLL
      for (int n = 0; n < kPieces; ++n)
        load_words<kPieceWords>(rows + loaded(place, token) * Rows::kRowBytes + piece(n) * kPieceBytes,
                                out.words[t][i][n]);
    }
  }
  /// Keys and values of a chunk.
  FORGE_DEVICE static void load_rows(const Args& args, const Place& place, Keys& keys, Values& values,
                                     int only = kAll) {
    FORGE_UNROLL
    for (int t = 0; t < kTiles; ++t) load_tile_keys(args, place, t, keys, only);
    FORGE_UNROLL
    for (int t = 0; t < kTiles; ++t) load_tile_values(args, place, t, values, only);
  }
  /// Loads the scales of all tokens, seen or not.
  FORGE_DEVICE static void load_key_scales(const Args& args, const Place& place, Keys& out) {
    if constexpr (Format::kScaled) {
      using Rows = typename Pool::template Rows<kHeadDim>;
      FORGE_UNROLL
      for (int j = 0; j < kKeyUnits; ++j)
        load_halves<kKeyTokens>(args.k + Rows::scale_index(place.row, key_unit(j) * kUnit) + slot() * kKeyTokens,
                                out.scales[j]);
    }
  }
  FORGE_DEVICE static void load_value_scales(const Args& args, const Place& place, Values& out) {
    if constexpr (Format::kScaled) {
      using Rows = typename Pool::template Rows<kValueDim>;
      FORGE_UNROLL
      for (int n = 0; n < kPieces; ++n)
        load_halves<kValueTokens>(args.v + Rows::scale_index(place.row, piece(n) * kPieceDims) + value_token0(),
                                  out.scales[n]);
    }
  }
  FORGE_DEVICE static void load_scales(const Args& args, const Place& place, Keys& keys, Values& values) {
    load_key_scales(args, place, keys);
    load_value_scales(args, place, values);
  }

  /// Sums of even and of odd runs, so that products do not all wait for each other.
  FORGE_DEVICE static void multiply_keys(const Args& args, const Place& next, const Query& query, const Lds& lds,
                                         Keys& keys, Scores& scores) {
    FORGE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      float odd[kColumnTiles][kSums] = {};
      FORGE_UNROLL
      for (int j = 0; j < kKeyUnits; j += kUnitsOfRun) {
        u32 pairs[kRows][kUnitsOfRun][kUnitWords];
        FORGE_UNROLL
        for (int h = 0; h < kRows; ++h) {
          FORGE_UNROLL
          for (int u = 0; u < kUnitsOfRun; ++u) {
            const int token = t * kRows + h;
            const u32 scales = keys.scales[j + u][token / 2];
            Format::expand_unit(keys.units[t][h][j + u],
                                token % 2 == 0 ? low_halves(scales, scales) : high_halves(scales, scales), pairs[h][u]);
          }
        }
        FORGE_UNROLL
        for (int first = 0; first < kUnitsOfRun * kUnitWords; first += kRunWords) {
          u32 a[kRunWords * kRows];
          FORGE_UNROLL
          for (int w = 0; w < kRunWords; ++w) {
            FORGE_UNROLL
            for (int h = 0; h < kRows; ++h)
              a[w * kRows + h] = pairs[h][(first + w) / kUnitWords][(first + w) % kUnitWords];
          }
          FORGE_UNROLL
          for (int c = 0; c < kColumnTiles; ++c) {
            FORGE_UNROLL
            for (int term = 0; term < kTerms; ++term) {
              const int run = (j * kUnitWords + first) / kRunWords;
              u32 b[kRunWords];
              Base::query_run(query, lds, term, c, run, b);
              multiply_fragments<T>(a, b, (run + term) % 2 == 0 ? scores[t][c] : odd[c]);
            }
          }
        }
        keep_schedule();
      }
      if (next.row != kNoRow) load_tile_keys(args, next, t, keys);
      FORGE_UNROLL
      for (int c = 0; c < kColumnTiles; ++c) {
        FORGE_UNROLL
        for (int i = 0; i < kSums; ++i) scores[t][c][i] += odd[c][i];
      }
    }
  }

  /// The scores in units of log2(e), with what the attributes add; unseen tokens' are such that their weights are 0.
  FORGE_DEVICE static void finish_scores(const Job& job, int chunk, const Place& place, Scores& scores) {
    const bool whole = uniform(place.is_whole());
    if (whole && C::kSoftcap == 0 && C::kAlibi == 0) return;
    FORGE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      FORGE_UNROLL
      for (int c = 0; c < kColumnTiles; ++c) {
        FORGE_UNROLL
        for (int i = 0; i < kSums; ++i) {
          const int token = token_of(t, T::c_row(lane_id(), i));
          float& score = scores[t][c][i];
          if constexpr (C::kSoftcap > 0) score = softcap(score, C::kSoftcap) * kLog2E;
          if constexpr (C::kAlibi > 0)
            score -= alibi_slope<C>(job.head0 + c * T::kN + T::c_column(lane_id(), i)) *
                     static_cast<float>(job.position - chunk * kChunk - token);
          if (!whole && !place.sees(token)) score = 2 * kLowest;
        }
      }
    }
  }
  /// Turns scores into weights and scales what has been summed so far.
  FORGE_DEVICE static void update(Scores& scores, Weights& weights, State& state) {
    FORGE_UNROLL
    for (int c = 0; c < kColumnTiles; ++c) {
      float keep[kHeadsOfLane];
      FORGE_UNROLL
      for (int e = 0; e < kHeadsOfLane; ++e) {
        float most = 2 * kLowest;
        FORGE_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          FORGE_UNROLL
          for (int i = 0; i < kSums; ++i)
            if (head_of(i) == e) most = max_of(most, scores[t][c][i]);
        }
        const float maximum = max_of(state.maximum[c][e], max_teams<T::kRowLanes>(most) - kRaise);
        keep[e] = exp2_of(state.maximum[c][e] - maximum);
        state.maximum[c][e] = maximum;
        float sum = 0;
        FORGE_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          FORGE_UNROLL
          for (int i = 0; i < kSums; ++i) {
            if (head_of(i) != e) continue;
            scores[t][c][i] = exp2_of(scores[t][c][i] - maximum);
            sum += scores[t][c][i];
          }
        }
        state.sum[c][e] = fma_of(state.sum[c][e], keep[e], sum);
      }
      FORGE_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        FORGE_UNROLL
        for (int term = 0; term < kTerms; ++term) {
          float now[kSums];
          FORGE_UNROLL
          for (int i = 0; i < kSums; ++i) now[i] = term + 1 < kTerms ? take_half(scores[t][c][i]) : scores[t][c][i];
          transpose_sums<T>(now, weights[t][c][term]);
        }
      }
      bool kept = true;  // as long as no maximum rises
      FORGE_UNROLL
      for (int e = 0; e < kHeadsOfLane; ++e) kept = kept && keep[e] == 1.0f;
      if (!any_lane(!kept)) continue;
      FORGE_UNROLL
      for (int tile = 0; tile < kValueTiles; ++tile) {
        FORGE_UNROLL
        for (int i = 0; i < kSums; ++i) state.values[tile][c][i] *= keep[head_of(i)];
      }
    }
  }

  /// Makes the scales of unseen tokens zeros.
  FORGE_DEVICE static void clear_scales(const Place& place, Values& values) {
    FORGE_UNROLL
    for (int i = 0; i < kValueTokens; ++i) {
      if (place.sees(value_token0() + i)) continue;
      FORGE_UNROLL
      for (int n = 0; n < kPieces; ++n) values.scales[n][i / 2] &= i % 2 == 0 ? 0xffff0000u : 0xffffu;
    }
  }
  /// The scales of the lane's tokens 2k and 2k + 1 of a tile.
  FORGE_DEVICE static u32 pair_of_scales(const u32 (&scales)[kValueTokens / 2], int tile, int k) {
    const int first = value_token(tile, 2 * k), second = value_token(tile, 2 * k + 1);
    if (second == first + 1) return scales[first / 2];  // first is even
    return (first % 2 == 0 ? low_halves : high_halves)(scales[first / 2], scales[second / 2]);
  }
  FORGE_DEVICE static void add_values(const Args& args, const Place& next, Values& values, const Weights& weights,
                                      State& state) {
    FORGE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      FORGE_UNROLL
      for (int n = 0; n < kPieces; ++n) {
        u32 scales[kRunWords];
        FORGE_UNROLL
        for (int k = 0; k < kRunWords; ++k) scales[k] = Format::kScaled ? pair_of_scales(values.scales[n], t, k) : 0;
        FORGE_UNROLL
        for (int w = 0; w < kPieceWords; ++w) {
          u32 pairs[kRunWords][kWordDims];
          FORGE_UNROLL
          for (int k = 0; k < kRunWords; ++k)
            Format::pair_tokens(values.words[t][2 * k][n][w], values.words[t][2 * k + 1][n][w], scales[k], pairs[k]);
          FORGE_UNROLL
          for (int e = 0; e < kWordDims; e += kRows) {
            u32 a[kRunWords * kRows];
            FORGE_UNROLL
            for (int k = 0; k < kRunWords; ++k) {
              FORGE_UNROLL
              for (int h = 0; h < kRows; ++h) a[k * kRows + h] = pairs[k][e + h];
            }
            FORGE_UNROLL
            for (int c = 0; c < kColumnTiles; ++c) {
              FORGE_UNROLL
              for (int term = 0; term < kTerms; ++term)
                multiply_fragments<T>(a, weights[t][c][term],
                                      state.values[(n * kPieceDims + w * kWordDims + e) / kRows][c]);
            }
          }
        }
      }
      if (next.row != kNoRow) load_tile_values(args, next, t, values);
    }
  }

  /// Adds one chunk to the wave's online softmax. The chunk at `next` (none if its row is kNoRow) is loaded into the
  /// registers that become free.
  static constexpr u64 kNoRow = ~static_cast<u64>(0);
  FORGE_DEVICE static void add_chunk(const Args& args, const Job& job, const Query& query, int chunk, const Place& next,
                                     Keys& keys, Values& values, State& state, const Lds& lds) {
    const Place place = place_of(job, chunk, 0, job.newest);
    Scores scores = {};
    multiply_keys(args, next, query, lds, keys, scores);
    if (next.row != kNoRow) load_key_scales(args, next, keys);
    finish_scores(job, chunk, place, scores);
    Weights weights;
    update(scores, weights, state);
    if (Format::kScaled && !place.is_whole()) clear_scales(place, values);
    add_values(args, next, values, weights, state);
    if (next.row != kNoRow) load_value_scales(args, next, values);
  }

  /// Writes the wave's values, maxima and sums of weights to shared memory. Ends with a barrier.
  FORGE_DEVICE static void share_state(const State& state, Lds& lds) {
    const int lane = lane_id();
    FORGE_UNROLL
    for (int c = 0; c < kColumnTiles; ++c) {
      FORGE_UNROLL
      for (int e = 0; e < kHeadsOfLane; ++e) {
        const int head = c * T::kN + T::c_column(lane, e);
        const float sum = sum_teams<T::kRowLanes>(state.sum[c][e]);
        if (lane < T::kRowLanes && head < kGroup) {
          lds.sums.set(head * C::kWaves + wave_id(), sum);
          lds.maxima.set(head * C::kWaves + wave_id(), state.maximum[c][e]);
        }
      }
      // Elements i, and with two rows of A their twins of row + 8, kTwin elements on.
      constexpr int kTwin = kSums / kRows;
      FORGE_UNROLL
      for (int i = 0; i < kTwin; ++i) {
        const int head = c * T::kN + T::c_column(lane, i);
        FORGE_UNROLL
        for (int n = 0; n < kPieces; ++n) {
          const int at = T::c_row(lane, i) + n * kSlots;
          if (head >= kGroup || at >= kAllPieces) continue;
          FORGE_UNROLL
          for (int first = 0; first < kPieceDims; first += 4) {
            F32x4 four;
            FORGE_UNROLL
            for (int d = 0; d < 4; ++d) {
              const int e = n * kPieceDims + first + d;
              four.at[d] = state.values[e / kRows][c][i + e % kRows * kTwin];
            }
            lds.values.set(((wave_id() * kGroup + head) * kValueDim + at * kPieceDims + first) / 4, four);
          }
        }
      }
    }
    barrier();
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    release_consumers();
    run_block(args, lds, block_id(), typename Row::StoredQueries{args});
  }
  /// Runs block `id` of kBlocks, [rows][kJobs][kWorkers], with any source of queries (attention_row.h).
  template <class Queries>
  FORGE_DEVICE static void run_block(const Args& args, Lds& lds, int id, const Queries& queries) {
    const int t = Row::row_of_block(id);
    if (C::kTokensTotal > 1 && idle_tile(args.counts, kTokenCount, t)) return;
    const Job job = Row::job_of(args, t, Row::part_of(id));
    Share share;
    if (!Row::template find_share<kChunk>(job, id, share)) return;
    const int first = share.first, end = share.end, stride = share.stride;
    // As in attention.h, the first chunk is loaded before the producer has ended. If it has the row's own token, that
    // token and the scales, which share sectors with its own, are loaded afterwards.
    static_assert(!Row::kLoadsEarly || kChunk * 2 % Row::kSectorBytes == 0, "scales of a chunk are whole sectors");
    const bool any = first < end, has_own = job.position < (first + 1) * kChunk;
    const bool early =
        Row::kLoadsEarly && any && (first * kChunk > job.oldest ? first * kChunk : job.oldest) < job.position;
    Keys keys = {};
    Values values = {};
    const int own_slot = any ? pool_slot(job, first) : 0;
    if (early) {
      const Place place = place_of(job, first, own_slot, job.position - 1);
      load_rows(args, place, keys, values);
      if (!has_own) load_scales(args, place, keys, values);
    }
    int slot_ahead = first + stride < end ? pool_slot(job, first + stride) : 0;
    queries.make(job, Row::template sees_own<kChunk>(job, share));
    Query query;
    Base::load_query(queries, job, query, lds);
    queries.done();
    if (any && (!early || has_own)) {
      const Place place = place_of(job, first, own_slot, job.newest);
      load_rows(args, place, keys, values, early ? job.position - first * kChunk : kAll);
      load_scales(args, place, keys, values);
    }
    State state = {};
    FORGE_UNROLL
    for (int c = 0; c < kColumnTiles; ++c) {
      FORGE_UNROLL
      for (int e = 0; e < kHeadsOfLane; ++e) state.maximum[c][e] = kLowest;
    }
    FORGE_LOOP
    for (int chunk = first; chunk < end; chunk += stride) {
      Place next = place_of(job, chunk + stride, slot_ahead, job.newest);
      if (chunk + stride >= end) next.row = kNoRow;
      slot_ahead = chunk + 2 * stride < end ? pool_slot(job, chunk + 2 * stride) : 0;
      add_chunk(args, job, query, chunk, next, keys, values, state, lds);
    }
    share_state(state, lds);
    Row::finish(args, job, share, lds);
  }
};

}  // namespace forge::gpu
