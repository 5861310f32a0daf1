#pragma once
// Running decoded CPU steps. One fork-join a step; nothing is allocated; what a thread computes never depends on how
// many there are.

#include <atomic>
#include <cstddef>
#include <vector>

#include "runtime/cpu/cpu_program.h"
#include "runtime/thread_pool.h"

namespace forge::runtime {

/// Scratch of one worker, sized when the program is opened.
struct WorkerScratch {
  float* tile = nullptr;       ///< kTileFloats
  float* attention = nullptr;  ///< attention_scratch_floats of the largest attention tile
  float* heads = nullptr;      ///< [kAttentionTokens][group * head_dim]
};

/// What steps share while a forward runs.
struct StepContext {
  const cpu::Kernels* kernels = nullptr;
  const StepIo* io = nullptr;
  const Blocks* blocks = nullptr;
  ThreadPool* pool = nullptr;
  std::vector<WorkerScratch> scratch;
  std::vector<std::atomic<std::uint32_t>>* arrivals = nullptr;  ///< zero between steps; [split tokens * KV heads]

  /// Runs of neighbouring tokens of one sequence, at most kAttentionTokens long; made once a forward.
  struct QueryTile {
    std::size_t token = 0, count = 0;
  };
  std::vector<QueryTile> query_tiles;
};

void run_step(const CpuStep& step, StepContext& context);

/// Runs sinks and transforms of `ops` from `first` on over a tile whose column 0 is column `column` of the section and
/// whose row 0 is row `row` of the step.
void run_tile_ops(const std::vector<TileInstr>& ops, std::size_t first, cpu::Tile tile, std::size_t row,
                  std::size_t column, const StepContext& context);

void run_attention(const AttentionStep& step, StepContext& context);

}  // namespace forge::runtime
