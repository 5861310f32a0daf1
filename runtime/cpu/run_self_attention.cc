// Runs attention of encoders: keys and values of the step's tokens are packed into blocks of the KV cache's layout, and
// the cache's kernels attend to them. These kernels are causal: a query at position p sees positions up to p. Here
// every query poses as one further behind, so that what it sees ends where it should.

#include <algorithm>

#include "runtime/cpu/run_steps.h"

namespace forge::runtime {
namespace {

constexpr std::size_t kPackTokens = 16;  // of one task

struct SelfTasks {
  const SelfAttentionStep* step;
  StepContext* context;
};

/// Packs keys and values of up to kPackTokens tokens.
void run_pack(void* data, std::size_t task, std::size_t) {
  const auto& [step, context] = *static_cast<const SelfTasks*>(data);
  const std::size_t first = task * kPackTokens, count = std::min(kPackTokens, context->io->tokens - first);
  const auto& kv = step->params.kv;
  const auto rows = [&](const cpu::ConstTile& x) {
    return cpu::ConstTile(x.data + first * x.stride, count, x.width, x.stride);
  };
  context->kernels->store_kv_columns(rows(step->k), kv.type, kv.head_dim, context->self_keys.data() + first,
                                     context->self_slots.data() + first);
  context->kernels->store_kv_rows(rows(step->v), kv.type, kv.value_dim, context->self_values.data() + first,
                                  context->self_slots.data() + first);
}

/// One query tile and one KV head.
void run_self_tile(void* data, std::size_t task, std::size_t worker) {
  const auto& [step, context] = *static_cast<const SelfTasks*>(data);
  const auto& tile = context->query_tiles[task / step->params.kv.heads];
  const std::size_t kv_head = task % step->params.kv.heads;
  const auto& runs = context->sequence_runs;
  const auto run = std::prev(std::ranges::upper_bound(runs, tile.token, {}, &StepContext::SequenceRun::token));
  auto params = step->params;
  params.pool = step->cache + context->self_blocks[static_cast<std::size_t>(run - runs.begin())] * params.block_stride;
  params.block_table = context->block_numbers.data();
  params.kv_length = run->count;
  const auto& slopes = step->slopes;
  params.window = step->reach < 0 ? 0 : 2 * step->reach + 1;
  const std::size_t dim = params.kv.head_dim, width = params.group * dim;
  context->kernels->attention_tile(params,
                                   {.q = step->q.data + tile.token * step->q.stride + kv_head * width,
                                    .token_stride = step->q.stride,
                                    .head_stride = dim,
                                    .tokens = tile.count,
                                    .positions = context->self_positions.data() + tile.token,
                                    .kv_head = kv_head,
                                    .slopes = slopes.empty() ? nullptr : slopes.data() + kv_head * params.group,
                                    .places = context->self_places.data() + tile.token},
                                   context->scratch[worker].attention,
                                   step->out + tile.token * step->out_stride + kv_head * width, step->out_stride, dim);
}

}  // namespace

void run_self_attention(const SelfAttentionStep& step, StepContext& context) {
  SelfTasks tasks{&step, &context};
  const std::size_t values = cpu::kv_values_offset(step.params.kv);
  std::size_t block = 0;
  context.self_blocks.clear();
  for (const auto& run : context.sequence_runs) {
    context.self_blocks.push_back(block);
    for (std::size_t i = 0; i < run.count; ++i) {
      std::byte* at = step.cache + (block + i / cpu::kKvBlockTokens) * step.params.block_stride;
      context.self_keys[run.token + i] = at;
      context.self_values[run.token + i] = at + values;
      context.self_slots[run.token + i] = static_cast<std::int32_t>(i % cpu::kKvBlockTokens);
      context.self_places[run.token + i] = static_cast<std::int32_t>(i);
      const auto last = static_cast<std::int32_t>(run.count) - 1;
      context.self_positions[run.token + i] = step.reach < 0 ? last : static_cast<std::int32_t>(i) + step.reach;
    }
    block += (run.count + cpu::kKvBlockTokens - 1) / cpu::kKvBlockTokens;
  }
  context.pool->run((context.io->tokens + kPackTokens - 1) / kPackTokens, run_pack, &tasks);
  context.pool->run(context.query_tiles.size() * step.params.kv.heads, run_self_tile, &tasks);
}

}  // namespace forge::runtime
