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
  float* sums = nullptr;       ///< [kSumTokens or less][tile width] where experts are added up
};

/// The slots of an experts step by expert: those of expert e are slots[begin[e]] .. slots[begin[e + 1] - 1], by token.
struct ExpertSlots {
  std::vector<std::int32_t> slots, tokens;  ///< numbers of slots, and of the tokens that they belong to
  std::vector<std::size_t> begin, next;
  std::vector<std::int32_t> active;  ///< experts that have a slot, ascending

  void reserve(std::size_t slot_count, std::size_t expert_count);
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
  ExpertSlots experts;  ///< of the step that runs
};

void run_step(const CpuStep& step, StepContext& context);

/// Runs sinks and transforms `first` .. `last` - 1 of `ops` over a tile whose column 0 is column `column` of the
/// section and whose row 0 is row `row` of the step.
void run_tile_ops(const std::vector<TileInstr>& ops, std::size_t first, std::size_t last, cpu::Tile tile,
                  std::size_t row, std::size_t column, const StepContext& context);

/// sum += factor * term, and term is scaled.
inline void add_scaled(cpu::Tile sum, cpu::Tile term, float factor, const cpu::Kernels& kernels) {
  kernels.unary(elementwise::Function::kScale)(term, &factor);
  kernels.binary(elementwise::Function::kAdd)(sum, term, sum, nullptr);
}

void run_attention(const AttentionStep& step, StepContext& context);
void run_experts(const CpuStep& step, StepContext& context, std::size_t tokens);
void run_route(const RouteStep& step, StepContext& context, std::size_t tokens);

}  // namespace forge::runtime
