#pragma once
// Runs decoded CPU steps. Each step is one fork-join over the thread pool. Nothing is allocated, and results do not
// depend on the number of threads.

#include <atomic>
#include <cstddef>
#include <vector>

#include "runtime/cpu/cpu_program.h"
#include "runtime/thread_pool.h"

namespace forge::runtime {

/// Scratch memory of one worker; the executor allocates it when the program is opened.
struct WorkerScratch {
  float* tile = nullptr;       ///< kTileFloats
  float* attention = nullptr;  ///< attention_scratch_floats of the largest query tile
  float* heads = nullptr;      ///< [kAttentionTokens][group * value_dim]
  float* sums = nullptr;       ///< [up to kSumTokens][tile width], sums over experts
};

/// The slots of an MoE step sorted by expert (a slot is a token and one of its experts). Expert e has slots[begin[e]]
/// .. slots[begin[e + 1] - 1], in ascending token order.
struct ExpertSlots {
  std::vector<std::int32_t> slots, tokens;  ///< slot numbers, and the token of each
  std::vector<std::size_t> begin, next;     ///< next: insertion positions while sorting
  std::vector<std::int32_t> active;         ///< experts with at least one slot, ascending

  /// Allocates for the largest step, so that sorting allocates nothing.
  void reserve(std::size_t slot_count, std::size_t expert_count);
};

/// State that steps share during a forward.
struct StepContext {
  const cpu::Kernels* kernels = nullptr;
  const StepIo* io = nullptr;
  const Blocks* blocks = nullptr;
  ThreadPool* pool = nullptr;
  std::vector<WorkerScratch> scratch;
  std::vector<std::atomic<std::uint32_t>>* arrivals = nullptr;  ///< [split tokens * KV heads], 0 between steps

  /// A run of at most kAttentionTokens neighbouring tokens of one sequence; made once per forward.
  struct QueryTile {
    std::size_t token = 0, count = 0;
  };
  std::vector<QueryTile> query_tiles;
  /// The tokens of one sequence, which are neighbours in the step; made once per forward.
  struct SequenceRun {
    std::size_t sequence = 0, token = 0, count = 0;
  };
  std::vector<SequenceRun> sequence_runs;
  /// Of attention without a cache, by token: the position whose causal view is what the token sees, and where its keys
  /// and values are packed. block_numbers: 0, 1, 2, ...
  std::vector<std::int32_t> self_positions, self_places, self_slots, block_numbers;
  std::vector<std::byte*> self_keys, self_values;
  std::vector<std::size_t> self_blocks;  ///< by sequence run: its first block
  ExpertSlots experts;                   ///< of the MoE step that is running
};

/// Runs one step on all threads.
void run_step(const CpuStep& step, StepContext& context);

/// Runs ops[first] .. ops[last - 1] (transforms and sinks) on a tile. The tile's column 0 is column `column` of the
/// section, its row 0 is row `row` of the step.
void run_tile_ops(const std::vector<TileInstr>& ops, std::size_t first, std::size_t last, cpu::Tile tile,
                  std::size_t row, std::size_t column, const StepContext& context);

/// sum += factor * term; term is overwritten with the product.
inline void add_scaled(cpu::Tile sum, cpu::Tile term, float factor, const cpu::Kernels& kernels) {
  kernels.unary(elementwise::Function::kScale)(term, &factor);
  kernels.binary(elementwise::Function::kAdd)(sum, term, sum, nullptr);
}

/// The step kinds with their own source file. `tokens`: tokens or logit rows of this forward.
void run_attention(const AttentionStep& step, StepContext& context);
void run_experts(const CpuStep& step, StepContext& context, std::size_t tokens);
void run_self_attention(const SelfAttentionStep& step, StepContext& context);
void run_select_keys(const SelectKeysStep& step, StepContext& context);
void run_recurrent(const RecurrentStep& step, StepContext& context);
void run_route(const RouteStep& step, StepContext& context, std::size_t tokens);

}  // namespace forge::runtime
