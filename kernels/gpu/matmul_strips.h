#pragma once
// Matmul by matrix instructions of few tokens (decode of batches), whose time is that of reading the weights. What a
// block is: tile_block.h; its waves share the tokens and have different rows.
//
// Weights go from memory to the registers of the matrix instruction, without shared memory: a lane loads whole units of
// the rows of A that it holds, and dequantises them to the words of its fragments. The columns that it gets so are
// others than those that the instruction's table names; any are right as long as the fragments of B have the same.
// Lanes that share a row of A (a group has kGroups of them) take neighbouring units:
//
//   row r of the weight   | unit 0   | unit 1   | unit 2   | unit 3   | unit 4 ...       kGroups = 4
//                           lane 0     lane 1     lane 2     lane 3     lane 0, its next unit of the step
//
//   instruction i         columns kRun * i .. of each lane's unit; B: the same columns of x, from shared memory
//
// Only x is in shared memory: a ring of kStages buffers of one step of k, kStep columns of kTokens rows, copied
// asynchronously where the target can, else through registers. A step needs one barrier of shared memory. Loads of
// weights are kAhead steps ahead, in registers of their own.
//
// Order of a sum: within a step by the lanes' units (see above), steps and parts of k ascending. It depends on the
// configuration only, never on the number of tokens in a step.

#include "kernels/gpu/tile_block.h"

namespace forge::gpu {

struct StripsDefaults : TilesDefaults {
  static constexpr int kAhead = 1;  ///< steps of weights that are under way
  static constexpr bool kReadsAllRows = true;
};

template <class C>
struct MatmulStrips : TileBlock<C> {
  using Block = TileBlock<C>;
  using Block::find_job, Block::kExperts, Block::kStages, Block::kSteps, Block::kTokens, Block::kUnits, Block::kXTakes,
      Block::kXUnits, Block::load_x, Block::weight_row;
  using typename Block::Args, typename Block::Job, typename Block::Numbers, typename Block::Sums, typename Block::T,
      typename Block::W;
  static_assert(C::kWavesAcross == 1, "the waves of a block have different rows");
  /// Columns of a row that a lane gives to an instruction, and words of them.
  static constexpr int kRun = T::kK / T::kGroups, kRunWords = kRun / 2;
  static constexpr int kLaneUnits = kUnits / T::kGroups;  ///< units of a row that a lane has in a step
  static_assert(kLaneUnits * T::kGroups == kUnits, "a step must be whole units of each lane that shares a row");
  static constexpr int kUnitWords = W::kUnitColumns / 2, kUnitChunks = W::kUnitColumns / 8;
  /// Chunks of x (8 columns, 16 bytes) of a row that a lane needs in a step, and those of an instruction.
  static constexpr int kLaneChunks = kLaneUnits * kUnitChunks, kRunChunks = kRun > 8 ? kRun / 8 : 1;
  static_assert(kLaneChunks % kRunChunks == 0, "a lane's columns must be whole runs");
  static_assert(kXUnits % 8 == 0, "a row of x in shared memory must span the banks");
  static constexpr int kAhead = C::kAhead < kSteps ? C::kAhead : kSteps;
  using Lds = typename Block::template Ring<kStages * kTokens * kXUnits>;
  /// A lane's weights of a step.
  struct Strip {
    typename W::Unit units[C::kTilesDown][T::kRowsOfA][kLaneUnits];
  };

  /// Index of a chunk of a row of x in shared memory. Chunks are swizzled against bank conflicts: eight lanes that read
  /// a chunk each have either eight rows, or two neighbouring rows and the units of four neighbouring lanes.
  FORGE_DEVICE static constexpr int place(int stage, int row, int chunk) {
    const int of_row = kUnitChunks == 1 ? (row & 1) << 2 | (row >> 1 & 3) : row & 7;
    const int of_lane = kUnitChunks == 4 ? (chunk >> 3 & 1) << 1 : 0;
    return (stage * kTokens + row) * kXUnits + (chunk ^ of_row ^ of_lane);
  }

  FORGE_DEVICE static void load_strip(const Args& args, const Job& job, int step, int down, Strip& strip) {
    FORGE_UNROLL
    for (int m = 0; m < C::kTilesDown; ++m) {
      FORGE_UNROLL
      for (int h = 0; h < T::kRowsOfA; ++h) {
        const int row = weight_row(job, (down * C::kTilesDown + m) * T::kM + T::row_of_a(lane_id(), h));
        FORGE_UNROLL
        for (int j = 0; j < kLaneUnits; ++j)
          strip.units[m][h][j] =
              W::load_unit(args.weights, row, job.unit0 + step * kUnits + j * T::kGroups + T::group(lane_id()));
      }
    }
  }
  FORGE_DEVICE static void copy_x(const Args& args, Lds& lds, const Job& job, int step, int stage) {
    Block::copy_x(args, lds, job, step, [&](int row, int chunk) { return place(stage, row, chunk); });
  }
  FORGE_DEVICE static void store_x(Lds& lds, const U32x4 (&x)[kXTakes], int stage) {
    Block::store_x(lds, x, [&](int row, int chunk) { return place(stage, row, chunk); });
  }

  /// Multiplies a step, whose rows of x are in buffer `stage`.
  FORGE_DEVICE static void multiply(const Lds& lds, int stage, const Strip& strip, Sums& sums) {
    u32 pairs[C::kTilesDown][T::kRowsOfA][kLaneUnits][kUnitWords];
    FORGE_UNROLL
    for (int chunk = 0; chunk < kLaneChunks; chunk += kRunChunks) {
      if (chunk % kUnitChunks == 0) {  // the run's units begin here
        FORGE_UNROLL
        for (int m = 0; m < C::kTilesDown; ++m) {
          FORGE_UNROLL
          for (int h = 0; h < T::kRowsOfA; ++h) {
            FORGE_UNROLL
            for (int j = chunk / kUnitChunks; j < ceil_div(chunk + kRunChunks, kUnitChunks); ++j)
              W::template expand<Numbers>(strip.units[m][h][j], pairs[m][h][j]);
          }
        }
      }
      FORGE_UNROLL
      for (int n = 0; n < C::kTilesAcross; ++n) {
        U32x4 x[kRunChunks];
        FORGE_UNROLL
        for (int c = 0; c < kRunChunks; ++c) {
          const int unit = (chunk + c) / kUnitChunks * T::kGroups + T::group(lane_id());
          x[c] = lds.units.get(
              place(stage, n * T::kN + T::b_row(lane_id(), 0), unit * kUnitChunks + (chunk + c) % kUnitChunks));
        }
        FORGE_UNROLL
        for (int first = 0; first < kRunChunks * 4; first += kRunWords) {
          FORGE_UNROLL
          for (int m = 0; m < C::kTilesDown; ++m) {
            u32 a[kRunWords * T::kRowsOfA], b[kRunWords];
            FORGE_UNROLL
            for (int w = 0; w < kRunWords; ++w) {
              const int word = chunk * 4 + first + w;  // of the lane's words of the step
              FORGE_UNROLL
              for (int h = 0; h < T::kRowsOfA; ++h)
                a[w * T::kRowsOfA + h] = pairs[m][h][word / kUnitWords][word % kUnitWords];
              b[w] = x[(first + w) / 4].at[(first + w) % 4];
            }
            multiply_fragments<T>(a, b, sums[m][n]);
          }
        }
      }
    }
  }

  /// `Turns` steps from `first` on. Unrolled, so that each one's registers and buffers are known: step s has those of
  /// numbers s % kAhead and s % kStages. x: those of the next step, on their way through registers.
  template <int Turns>
  FORGE_DEVICE static void turns(const Args& args, Lds& lds, const Job& job, int first, int down,
                                 Strip (&strips)[kAhead], U32x4 (&x)[kXTakes], Sums& sums) {
    FORGE_UNROLL
    for (int i = 0; i < Turns; ++i) {
      const int step = first + i;
      if constexpr (kAsyncCopies) wait_copies_but<kStages - 2>();
      barrier_shared();
      if constexpr (kAsyncCopies) {
        if (step + kStages - 1 < kSteps) copy_x(args, lds, job, step + kStages - 1, (i + kStages - 1) % kStages);
        commit_copies();  // an empty group near the end, so that the number of groups tells the step
      }
      multiply(lds, i % kStages, strips[i % kAhead], sums);
      keep_schedule();
      if constexpr (!kAsyncCopies) {
        if (step + 1 < kSteps) store_x(lds, x, (i + 1) % kStages);
        if (step + 2 < kSteps) load_x(args, job, step + 2, x);
      }
      if (step + kAhead < kSteps) load_strip(args, job, step + kAhead, down, strips[i % kAhead]);
      keep_schedule();
    }
  }
  /// Turns after which registers and buffers begin again.
  static constexpr int turns_of_loop() {
    int turns = kAhead;
    while (turns % kStages != 0) turns += kAhead;
    return turns;
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const typename Block::Place in_grid;
    const int real = uniform(load(args.counts + C::kCount)), down = wave_id();
    if (!kExperts && in_grid.tile * kTokens >= whole_tiles(real)) return;
    Job job{};
    Strip strips[kAhead];
    // As in matmul_tiles.h, the first weights are loaded before the producer has ended where the job is known.
    if constexpr (kExperts) {
      release_consumers();
      wait_for_producer();
    }
    if (!find_job(args, lds, in_grid, real, job)) return;
    FORGE_UNROLL
    for (int s = 0; s < kAhead; ++s) load_strip(args, job, s, down, strips[s]);
    if constexpr (!kExperts) {
      release_consumers();
      wait_for_producer();
    }
    U32x4 x[kXTakes];
    if constexpr (kAsyncCopies) {
      FORGE_UNROLL
      for (int s = 0; s < kStages - 1; ++s) {
        if (s < kSteps) copy_x(args, lds, job, s, s);
        commit_copies();
      }
    } else {
      load_x(args, job, 0, x);
      store_x(lds, x, 0);
      if constexpr (kSteps > 1) load_x(args, job, 1, x);
    }
    Sums sums = {};
    constexpr int kTurns = turns_of_loop(), kRest = kSteps % kTurns;
    FORGE_LOOP
    for (int step = 0; step < kSteps - kRest; step += kTurns)
      turns<kTurns>(args, lds, job, step, down, strips, x, sums);
    turns<kRest>(args, lds, job, kSteps - kRest, down, strips, x, sums);
    Block::end(args, lds, job, in_grid, sums);
  }
};

}  // namespace forge::gpu
