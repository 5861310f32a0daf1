// MoE steps: the routing, and matmuls with the selected experts' weights. Slots (a token and one of its experts) are
// first sorted by expert, so that a step reads an expert's weights once for all tokens that selected it, and not at all
// if none did. A slot's products do not depend on other slots of the expert, and a token's experts are summed in
// ascending expert order, so results are batch-invariant.

#include <algorithm>
#include <span>

#include "kernels/quant/x16.h"
#include "runtime/cpu/run_steps.h"

namespace forge::runtime {
namespace {

/// Tasks per thread that steps with a sum aim for.
constexpr std::size_t kTasksPerThread = 2;

/// Context of a run's tasks. Tokens are cut into chunks only for steps that sum experts.
struct ExpertTasks {
  const CpuStep* step;
  StepContext* context;
  std::size_t tokens, token_chunk, token_chunks, column_tiles;
};

/// Column tiles of a section.
std::size_t tiles_of(const TileSection& section) {
  return (section.end - section.begin + section.tile_width - 1) / section.tile_width;
}

/// The section that contains column tile `tile` of the step; `tile` becomes its index within the section.
const TileSection& section_at(const CpuStep& step, std::size_t& tile) {
  const TileSection* section = step.sections.data();
  for (; tile >= tiles_of(*section); ++section) tile -= tiles_of(*section);
  return *section;
}

struct Columns {
  std::size_t begin, width;
};
/// Columns of tile `tile` of a section.
Columns columns_of(const TileSection& section, std::size_t tile) {
  const std::size_t begin = tile * section.tile_width;
  return {begin, std::min(section.tile_width, section.end - section.begin - begin)};
}

/// Matmul of some columns of one expert's weights by places [first, first + tile.rows) of the sorted list. The list
/// serves as the matmul's row map.
void run_products(const TileInstr& op, const ExpertSlots& list, std::size_t expert, std::size_t first, cpu::Tile tile,
                  std::size_t column) {
  op.matmul(op.b + expert * op.expert_bytes + column / quant::kX16Rows * op.group_bytes, op.k,
            (tile.width + quant::kX16Rows - 1) / quant::kX16Rows, op.a, op.x_row_bytes,
            (op.shared_x ? list.tokens : list.slots).data() + first, tile.rows, tile.data, tile.stride);
}

/// One expert and one column tile: all of the expert's slots. The tile's rows belong to scattered rows of the step, so
/// ops run row by row.
void run_expert_task(void* data, std::size_t task, std::size_t worker) {
  const auto& tasks = *static_cast<const ExpertTasks*>(data);
  auto& context = *tasks.context;
  const auto& list = context.experts;
  const auto expert = static_cast<std::size_t>(list.active[task / tasks.column_tiles]);
  std::size_t number = task % tasks.column_tiles;
  const auto& section = section_at(*tasks.step, number);
  const auto [column, width] = columns_of(section, number);
  const std::size_t end = list.begin[expert + 1];
  for (std::size_t first = list.begin[expert]; first < end; first += section.tile_tokens) {
    const cpu::Tile tile{context.scratch[worker].tile, std::min(section.tile_tokens, end - first), width,
                         section.tile_width};
    run_products(section.ops[0], list, expert, first, tile, column);
    for (std::size_t i = 0; i < tile.rows; ++i)
      run_tile_ops(section.ops, 1, section.ops.size(), {tile.data + i * tile.stride, 1, tile.width, tile.stride},
                   static_cast<std::size_t>(list.slots[first + i]), column, context);
  }
}

/// Computes the slots of one expert that belong to tokens [begin, begin + sums.rows) and adds them, weighted, to their
/// tokens' sums.
void add_expert(const TileSection& section, std::size_t expert, std::size_t begin, cpu::Tile sums, std::size_t column,
                float* scratch, const StepContext& context) {
  const auto& list = context.experts;
  const auto tokens = std::span(list.tokens).subspan(list.begin[expert], list.begin[expert + 1] - list.begin[expert]);
  const auto place = [&](std::size_t token) {  // an expert's slots are in ascending token order
    return list.begin[expert] +
           static_cast<std::size_t>(std::ranges::lower_bound(tokens, static_cast<std::int32_t>(token)) -
                                    tokens.begin());
  };
  const std::size_t last = place(begin + sums.rows);
  for (std::size_t first = place(begin); first < last; first += section.tile_tokens) {
    const cpu::Tile tile{scratch, std::min(section.tile_tokens, last - first), sums.width, section.tile_width};
    run_products(section.ops[0], list, expert, first, tile, column);
    for (std::size_t i = 0; i < tile.rows; ++i) {
      const auto slot = static_cast<std::size_t>(list.slots[first + i]);
      const auto token = static_cast<std::size_t>(list.tokens[first + i]) - begin;
      const cpu::Tile row{tile.data + i * tile.stride, 1, tile.width, tile.stride};
      run_tile_ops(section.ops, 1, section.sum_at, row, slot, column, context);
      add_scaled({sums.data + token * sums.stride, 1, sums.width, sums.stride}, row,
                 section.ops[section.sum_at].shares[slot], *context.kernels);
    }
  }
}

/// One column tile and one chunk of tokens: sums all experts in ascending order, then runs the ops after the sum.
void run_sum_task(void* data, std::size_t task, std::size_t worker) {
  const auto& tasks = *static_cast<const ExpertTasks*>(data);
  auto& context = *tasks.context;
  const std::size_t begin = task % tasks.token_chunks * tasks.token_chunk;
  std::size_t number = task / tasks.token_chunks;
  const auto& section = section_at(*tasks.step, number);
  const auto [column, width] = columns_of(section, number);
  const cpu::Tile sums{context.scratch[worker].sums, std::min(tasks.token_chunk, tasks.tokens - begin), width,
                       section.tile_width};
  std::fill_n(sums.data, sums.rows * sums.stride, 0.0F);
  for (const std::int32_t expert : context.experts.active)
    add_expert(section, static_cast<std::size_t>(expert), begin, sums, column, context.scratch[worker].tile, context);
  for (std::size_t row = 0; row < sums.rows; row += section.tile_tokens)
    run_tile_ops(section.ops, section.sum_at + 1, section.ops.size(),
                 {sums.data + row * sums.stride, std::min(section.tile_tokens, sums.rows - row), width, sums.stride},
                 begin + row, column, context);
}

/// Counting sort of the step's slots by expert. It is stable, so tokens ascend; slots with an invalid expert are
/// dropped.
void list_slots(const TileInstr& source, std::size_t tokens, ExpertSlots& list) {
  const std::span chosen(source.chosen, tokens * source.slots);
  const auto valid = [&](std::int32_t expert) { return static_cast<std::uint32_t>(expert) < source.experts; };
  list.begin.assign(source.experts + 1, 0);
  list.active.clear();
  for (const std::int32_t expert : chosen)
    if (valid(expert)) ++list.begin[static_cast<std::size_t>(expert) + 1];
  for (std::size_t expert = 0; expert < source.experts; ++expert) {
    if (list.begin[expert + 1] > 0) list.active.push_back(static_cast<std::int32_t>(expert));
    list.begin[expert + 1] += list.begin[expert];
  }
  list.next.assign(list.begin.begin(), list.begin.end() - 1);
  list.slots.resize(list.begin.back());
  list.tokens.resize(list.begin.back());
  for (std::size_t slot = 0; slot < chosen.size(); ++slot) {
    if (!valid(chosen[slot])) continue;
    const std::size_t place = list.next[static_cast<std::size_t>(chosen[slot])]++;
    list.slots[place] = static_cast<std::int32_t>(slot);
    list.tokens[place] = static_cast<std::int32_t>(slot / source.slots);
  }
}

struct RouteTasks {
  const RouteStep* step;
  std::size_t tokens, chunk;
};

/// Routes a chunk of tokens.
void run_route_task(void* data, std::size_t task, std::size_t) {
  const auto& [step, tokens, chunk] = *static_cast<const RouteTasks*>(data);
  const std::size_t used = step->params.used;
  for (std::size_t t = task * chunk; t < std::min(tokens, (task + 1) * chunk); ++t)
    cpu::route_token(step->params, step->logits + t * step->stride, step->experts + t * used, step->shares + t * used);
}

}  // namespace

void ExpertSlots::reserve(std::size_t slot_count, std::size_t expert_count) {
  slots.reserve(slot_count);
  tokens.reserve(slot_count);
  begin.reserve(expert_count + 1);
  next.reserve(expert_count);
  active.reserve(expert_count);
}

void run_experts(const CpuStep& step, StepContext& context, std::size_t tokens) {
  list_slots(step.sections[0].ops[0], tokens, context.experts);
  ExpertTasks tasks{.step = &step, .context = &context, .tokens = tokens, .token_chunk = tokens, .token_chunks = 1};
  for (const auto& section : step.sections) tasks.column_tiles += tiles_of(section);
  // Without a sum (gate and up projections) every active expert and column tile is an independent task.
  if (step.sections[0].sum_at == 0) {
    context.pool->run(context.experts.active.size() * tasks.column_tiles, run_expert_task, &tasks);
    return;
  }
  // As few chunks of tokens as give every thread work, so that many tokens share a read of weights. No result changes.
  const std::size_t wanted = (kTasksPerThread * context.pool->size() + tasks.column_tiles - 1) / tasks.column_tiles;
  const std::size_t most = tile_size(context.kernels->cpu_class).tokens;
  const std::size_t chunks = std::clamp<std::size_t>(wanted, 1, (tokens + most - 1) / most);
  tasks.token_chunk = std::min((tokens + chunks - 1) / chunks, kSumTokens);
  tasks.token_chunks = (tokens + tasks.token_chunk - 1) / tasks.token_chunk;
  context.pool->run(tasks.column_tiles * tasks.token_chunks, run_sum_task, &tasks);
}

void run_route(const RouteStep& step, StepContext& context, std::size_t tokens) {
  RouteTasks tasks{&step, tokens, 8};
  context.pool->run((tokens + tasks.chunk - 1) / tasks.chunk, run_route_task, &tasks);
}

}  // namespace forge::runtime
