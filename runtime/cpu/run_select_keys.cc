// Runs select_keys steps. As many tokens at once as the scratch has room for: first a task for each token and chunk of
// its positions computes scores, then one for each token and list chooses. So the threads share a long context.

#include <algorithm>

#include "runtime/cpu/run_steps.h"

namespace forge::runtime {
namespace {

/// Positions of one task of scores: whole blocks of the cache.
constexpr std::size_t kScoredPositions = cpu::kAttentionChunk;

/// Context of a run's tasks: tokens [first, first + count), of up to `chunks` chunks each.
struct SelectTasks {
  const SelectKeysStep* step;
  StepContext* context;
  std::size_t first, count, chunks;
};

/// Positions that a token sees, its own included.
std::size_t visible_positions(const StepIo& io, std::size_t token) {
  const auto length = io.kv_length[static_cast<std::size_t>(io.sequence[token])];
  return static_cast<std::size_t>(std::clamp(io.positions[token] + 1, 0, length));
}

/// The scores of list `list` of the tasks' token number `index`; as many floats of scratch follow them.
float* scores_at(const SelectKeysStep& step, std::size_t index, std::size_t list) {
  return step.scores + (index * step.lists + list) * 2 * step.positions;
}

void score_chunk(void* data, std::size_t task, std::size_t worker) {
  const auto& tasks = *static_cast<SelectTasks*>(data);
  const auto& step = *tasks.step;
  const auto& io = *tasks.context->io;
  const std::size_t index = task / tasks.chunks, token = tasks.first + index;
  auto call = step.call;
  call.begin = task % tasks.chunks * kScoredPositions;
  call.end = std::min(call.begin + kScoredPositions, visible_positions(io, token));
  if (call.begin >= call.end) return;
  call.block_table = io.block_table.data() + step.kv_group * io.group_stride +
                     static_cast<std::size_t>(io.sequence[token]) * io.table_stride;
  call.q += token * step.q_stride;
  if (call.weights != nullptr) call.weights += token * step.weights_stride;
  call.scratch = tasks.context->scratch[worker].tile;
  call.scores = scores_at(step, index, 0);
  call.scores_stride = 2 * step.positions;
  tasks.context->kernels->score_keys(call);
}

void choose_list(void* data, std::size_t task, std::size_t) {
  const auto& tasks = *static_cast<SelectTasks*>(data);
  const auto& step = *tasks.step;
  const std::size_t index = task / step.lists, list = task % step.lists, token = tasks.first + index;
  float* scores = scores_at(step, index, list);
  cpu::choose_keys(step.choice, scores, visible_positions(*tasks.context->io, token), scores + step.positions,
                   step.out + token * step.out_stride + list * step.choice.top_k);
}

}  // namespace

void run_select_keys(const SelectKeysStep& step, StepContext& context) {
  static_assert(cpu::score_keys_scratch_floats({.head_dim = cpu::kHeadDimMax}) <= kTileFloats);
  const std::size_t tokens = context.io->tokens;
  for (std::size_t first = 0; first < tokens; first += step.together) {
    SelectTasks tasks{&step, &context, first, std::min(step.together, tokens - first), 0};
    for (std::size_t t = first; t < first + tasks.count; ++t) {
      const std::size_t positions = visible_positions(*context.io, t);
      tasks.chunks = std::max(tasks.chunks, (positions + kScoredPositions - 1) / kScoredPositions);
    }
    context.pool->run(tasks.count * tasks.chunks, score_chunk, &tasks);
    context.pool->run(tasks.count * step.lists, choose_list, &tasks);
  }
}

}  // namespace forge::runtime
