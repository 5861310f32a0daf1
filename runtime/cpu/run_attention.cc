// Runs attention steps. Many tokens (prefill): a task is one query tile of up to kAttentionTokens tokens and one KV
// head. Few tokens (decode): a task is one chunk of one token's KV and one KV head, so that threads share a long
// context; the last chunk to finish merges all of them.

#include <algorithm>

#include "runtime/cpu/run_steps.h"

namespace forge::runtime {
namespace {

/// The step's parameters with the block table and length of a token's sequence.
cpu::AttentionParams params_of(const AttentionStep& step, const StepIo& io, std::size_t token) {
  auto params = step.params;
  const auto sequence = static_cast<std::size_t>(io.sequence[token]);
  params.block_table = io.block_table.data() + step.kv_group * io.group_stride + sequence * io.table_stride;
  params.kv_length = static_cast<std::size_t>(io.kv_length[sequence]);
  return params;
}

/// The query heads of one KV head for `count` tokens from `token` on.
cpu::AttentionQuery query_of(const AttentionStep& step, const StepIo& io, std::size_t token, std::size_t count,
                             std::size_t kv_head) {
  const auto& p = step.params;
  return {.q = step.q + token * step.q_stride + kv_head * p.group * p.kv.head_dim,
          .token_stride = step.q_stride,
          .head_stride = p.kv.head_dim,
          .tokens = count,
          .positions = io.positions.data() + token,
          .kv_head = kv_head,
          .sinks = step.sinks == nullptr ? nullptr : step.sinks + kv_head * p.group,
          .slopes = step.slopes.empty() ? nullptr : step.slopes.data() + kv_head * p.group,
          .selected = step.selected == nullptr ? nullptr
                                               : step.selected + token * step.selected_stride +
                                                     (step.lists == 1 ? 0 : kv_head * step.selected_count),
          .selected_stride = step.selected_stride,
          .selected_count = step.selected_count,
          .selected_block = step.selected_block};
}

/// Context of a run's tasks.
struct AttentionTasks {
  const AttentionStep* step;
  StepContext* context;
  std::size_t first_task[8];  ///< split: index of token t's first task; tasks are ordered by token, KV head, chunk
};

/// Runs the epilogue (store, quantise) on the finished heads of some tokens.
void finish(const AttentionStep& step, StepContext& context, float* heads, std::size_t token, std::size_t count,
            std::size_t kv_head) {
  const std::size_t width = step.params.group * step.params.kv.value_dim;
  run_tile_ops(step.ops, 0, step.ops.size(), {heads, count, width, width}, token, kv_head * width, context);
}

/// One query tile and one KV head.
void run_query_tile(void* data, std::size_t task, std::size_t worker) {
  auto& tasks = *static_cast<AttentionTasks*>(data);
  const auto& step = *tasks.step;
  auto& context = *tasks.context;
  const auto& p = step.params;
  const auto& tile = context.query_tiles[task / p.kv.heads];
  const std::size_t kv_head = task % p.kv.heads;
  const auto& scratch = context.scratch[worker];
  const auto params = params_of(step, *context.io, tile.token);
  context.kernels->attention_tile(params, query_of(step, *context.io, tile.token, tile.count, kv_head),
                                  scratch.attention, scratch.heads, p.group * p.kv.value_dim, p.kv.value_dim);
  finish(step, context, scratch.heads, tile.token, tile.count, kv_head);
}

/// Chunks before the first position that a token sees, and chunks that it sees.
std::size_t chunks_before(const AttentionStep& step, const StepIo& io, std::size_t token) {
  return cpu::attention_first_chunk(step.params, io.positions[token]);
}
std::size_t chunks_of(const AttentionStep& step, const StepIo& io, std::size_t token) {
  return cpu::attention_chunks(static_cast<std::size_t>(io.positions[token]) + 1) - chunks_before(step, io, token);
}

/// One chunk of one token's KV and one KV head. An atomic counter per token and KV head counts finished chunks. Its
/// acquire-release increment makes all partial results visible to the thread that finishes last; that thread merges
/// them, in chunk order, and resets the counter for the next step. So the result does not depend on which thread is
/// last.
void run_chunk(void* data, std::size_t task, std::size_t worker) {
  auto& tasks = *static_cast<AttentionTasks*>(data);
  const auto& step = *tasks.step;
  auto& context = *tasks.context;
  const auto& io = *context.io;
  const auto& p = step.params;
  std::size_t token = 0;
  while (token + 1 < io.tokens && task >= tasks.first_task[token + 1]) ++token;
  const std::size_t chunks = chunks_of(step, io, token);
  const std::size_t kv_head = (task - tasks.first_task[token]) / chunks;
  const std::size_t chunk = (task - tasks.first_task[token]) % chunks;
  const std::size_t chunk_stride = p.group * cpu::attention_partial_floats(p.kv.value_dim);
  float* partials = step.partials + (token * p.kv.heads + kv_head) * step.chunks_max * chunk_stride;
  const auto params = params_of(step, io, token);
  const auto query = query_of(step, io, token, 1, kv_head);
  context.kernels->attention_chunk(params, query, chunks_before(step, io, token) + chunk,
                                   context.scratch[worker].attention, partials + chunk * chunk_stride);
  auto& arrived = (*context.arrivals)[token * p.kv.heads + kv_head];
  // Not the last chunk of this token and KV head: another thread merges.
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < chunks) return;
  arrived.store(0, std::memory_order_relaxed);
  float* heads = context.scratch[worker].heads;
  context.kernels->attention_merge(params, query, partials, chunks, chunk_stride, heads, p.group * p.kv.value_dim,
                                   p.kv.value_dim);
  finish(step, context, heads, token, 1, kv_head);
}

}  // namespace

void run_attention(const AttentionStep& step, StepContext& context) {
  const auto& io = *context.io;
  AttentionTasks tasks{&step, &context, {}};
  // More tokens than the step splits for: one task per query tile and KV head.
  if (io.tokens > step.split_tokens || io.tokens > std::size(tasks.first_task)) {
    context.pool->run(context.query_tiles.size() * step.params.kv.heads, run_query_tile, &tasks);
    return;
  }
  std::size_t count = 0;
  for (std::size_t t = 0; t < io.tokens; ++t) {
    tasks.first_task[t] = count;
    count += chunks_of(step, io, t) * step.params.kv.heads;
  }
  context.pool->run(count, run_chunk, &tasks);
}

}  // namespace forge::runtime
