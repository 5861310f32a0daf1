// Runs tile steps, and dispatches all step kinds. A tile step fills tiles of float columns from a source and runs the
// section's ops on them while they are in the CPU's caches. Few rows (decode) are split by columns (column_split.h),
// many rows (prefill) into tiles of columns by chunks of rows.

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/row_functions.h"
#include "kernels/quant/x16.h"
#include "runtime/cpu/column_split.h"
#include "runtime/cpu/run_steps.h"

namespace forge::runtime {
namespace {

using plan::TileOpKind;

float* floats(std::byte* address) {
  return reinterpret_cast<float*>(address);
}
const float* const_floats(const std::byte* address) {
  return reinterpret_cast<const float*>(address);
}

/// Source kExpertRows: each row of the tile is the weighted sum of its slots' rows, 64 columns at a time.
void sum_expert_rows(const TileInstr& op, cpu::Tile tile, std::size_t row, std::size_t column,
                     const StepContext& context) {
  constexpr std::size_t kColumns = 64;
  float slot_row[kColumns];
  for (std::size_t t = 0; t < tile.rows; ++t)
    for (std::size_t begin = 0; begin < tile.width; begin += kColumns) {
      const std::size_t width = std::min(kColumns, tile.width - begin);
      const cpu::Tile sum{tile.data + t * tile.stride + begin, 1, width, width}, term{slot_row, 1, width, width};
      std::fill_n(sum.data, width, 0.0F);
      for (std::size_t i = 0; i < op.slots; ++i) {
        const std::size_t slot = (row + t) * op.slots + i;
        context.kernels->copy({const_floats(op.a) + slot * op.stride + column + begin, 1, width, width}, term);
        add_scaled(sum, term, op.shares[(row + t) * op.share_stride + i], *context.kernels);
      }
    }
}

/// Source kMatmul. If tokens of long prompts use another kernel, the rows are multiplied in runs of one kind.
void run_matmul(const TileInstr& op, cpu::Tile tile, std::size_t row, std::size_t column, const StepContext& context) {
  const std::size_t groups = (tile.width + 15) / 16;
  const auto multiply = [&](cpu::MatmulFn matmul, std::size_t first, std::size_t end) {
    matmul(op.b + column / 16 * op.group_bytes, op.k, groups, op.a + (row + first) * op.x_row_bytes, op.x_row_bytes,
           nullptr, end - first, tile.data + first * tile.stride, tile.stride);
  };
  if (op.prompt_matmul == op.matmul) return multiply(op.matmul, 0, tile.rows);
  const auto* prompt = context.io->prompt.data() + row;
  for (std::size_t first = 0, end = 0; first < tile.rows; first = end) {
    while (end < tile.rows && prompt[end] == prompt[first]) ++end;
    multiply(prompt[first] != 0 ? op.prompt_matmul : op.matmul, first, end);
  }
}

/// Fills the tile from its source: rows row .. row + tile.rows of the step, columns column .. column + tile.width of
/// the section.
void run_source(const TileInstr& op, cpu::Tile tile, std::size_t row, std::size_t column, const StepContext& context) {
  const auto& kernels = *context.kernels;
  switch (op.kind) {
    case TileOpKind::kMatmul:
      run_matmul(op, tile, row, column, context);
      return;
    case TileOpKind::kEmbed:
      cpu::embed_rows(op.dtype, op.packed ? quant::Layout::kX16 : quant::Layout::kNative, op.b, op.table_rows,
                      reinterpret_cast<const std::int32_t*>(op.a) + row, tile);
      return;
    case TileOpKind::kLoad:
      kernels.copy({const_floats(op.a) + row * op.stride + column, tile.rows, tile.width, op.stride}, tile);
      return;
    case TileOpKind::kExpertRows:
      sum_expert_rows(op, tile, row, column, context);
      return;
    default: {  // kGather
      const auto* indices = reinterpret_cast<const std::int32_t*>(op.b) + row;
      for (std::size_t t = 0; t < tile.rows; ++t)
        kernels.copy(
            {const_floats(op.a) + static_cast<std::size_t>(indices[t]) * op.stride + column, 1, tile.width, op.stride},
            {tile.data + t * tile.stride, 1, tile.width, tile.stride});
    }
  }
}

// ---- transforms and sinks ----

/// The tile that ops work on, and its position: row 0 is row `row` of the step, column 0 is column `column` of the
/// section. Pairs of columns halve width and column.
struct TileState {
  cpu::Tile tile;
  std::size_t row, column;
  const StepContext& context;

  [[nodiscard]] const cpu::Kernels& kernels() const { return *context.kernels; }
  /// The op's operand at the tile's position; stride 0 is one row for all.
  [[nodiscard]] cpu::ConstTile operand(const TileInstr& op) const {
    return {const_floats(op.a) + row * op.stride + column, tile.rows, tile.width, op.stride};
  }
};

/// Scales each row by 1/rms from sums of squares that an earlier step wrote. Slots of a token share its row of squares.
void run_inv_rms(const TileInstr& op, TileState& at) {
  float inv[kTileTokens];
  const auto& kernels = at.kernels();
  if (op.slots == 1) {
    kernels.inv_rms(const_floats(op.a) + at.row * op.count, op.count, op.count, at.tile.rows, op.k, op.eps, inv);
  } else {
    for (std::size_t t = 0; t < at.tile.rows; ++t)
      kernels.inv_rms(const_floats(op.a) + (at.row + t) / op.slots * op.count, op.count, op.count, 1, op.k, op.eps,
                      inv + t);
  }
  kernels.scale_rows(at.tile, inv);
}

void run_unary(const TileInstr& op, TileState& at) {
  op.unary(at.tile, op.parameters.data());
}

/// An operand of one number is repeated in a row of `kColumns`, which all columns and rows of the tile share.
void run_binary_single(const TileInstr& op, TileState& at) {
  constexpr std::size_t kColumns = 256;
  float row[kColumns];
  std::fill_n(row, kColumns, *const_floats(op.a));
  const auto& tile = at.tile;
  for (std::size_t begin = 0; begin < tile.width; begin += kColumns) {
    const std::size_t width = std::min(kColumns, tile.width - begin);
    const cpu::Tile part{tile.data + begin, tile.rows, width, tile.stride};
    op.binary(part, {row, tile.rows, width, 0}, part, op.parameters.data());
  }
}

void run_binary(const TileInstr& op, TileState& at) {
  if (op.single) return run_binary_single(op, at);
  op.binary(at.tile, at.operand(op), at.tile, op.parameters.data());
}

/// Turns each `count` columns x and `count` columns y into `count` columns f(x, y), in place from left to right:
/// results never overwrite columns that are still to be read.
void run_pairs(const TileInstr& op, TileState& at) {
  const std::size_t unit = op.count;
  const auto& tile = at.tile;
  for (std::size_t from = 0, to = 0; from < tile.width; from += 2 * unit, to += unit)
    op.binary({tile.data + from, tile.rows, unit, tile.stride}, {tile.data + from + unit, tile.rows, unit, tile.stride},
              {tile.data + to, tile.rows, unit, tile.stride}, op.parameters.data());
  at.tile.width /= 2;
  at.column /= 2;
}

/// Adds the vector (bias) of its expert to each row.
void run_expert_vectors(const TileInstr& op, TileState& at) {
  const auto add = at.kernels().binary(elementwise::Function::kAdd);
  for (std::size_t t = 0; t < at.tile.rows; ++t)
    if (const auto expert = static_cast<std::uint32_t>(op.chosen[at.row + t]); expert < op.experts) {
      const cpu::Tile one{at.tile.data + t * at.tile.stride, 1, at.tile.width, at.tile.stride};
      add(one, {const_floats(op.a) + expert * op.stride + at.column, 1, one.width, one.stride}, one, nullptr);
    }
}

/// Multiplies each row by its expert's factor.
void run_expert_factors(const TileInstr& op, TileState& at) {
  float factors[kTileTokens];
  for (std::size_t t = 0; t < at.tile.rows; ++t) {
    const auto expert = static_cast<std::uint32_t>(op.chosen[at.row + t]);
    factors[t] = expert < op.experts ? const_floats(op.a)[expert] : 1.0F;
  }
  at.kernels().scale_rows(at.tile, factors);
}

void run_rms_norm(const TileInstr& op, TileState& at) {
  at.kernels().rms_norm_heads(at.tile, op.head_dim, const_floats(op.a), op.eps);
}

void run_layer_norm(const TileInstr& op, TileState& at) {
  // Weights per column start at the tile's first column; shared ones are the same for each head.
  const std::size_t from = op.shared ? 0 : at.column;
  at.kernels().layer_norm_heads(at.tile, op.head_dim, const_floats(op.a) + from,
                                op.b == nullptr ? nullptr : const_floats(op.b) + from, op.shared, op.eps);
}

void run_rope(const TileInstr& op, TileState& at) {
  at.kernels().rope(at.tile, op.head_dim, op.rotary, op.rope_mode, const_floats(op.a) + at.row * op.rotary, op.rotary);
}

void run_store(const TileInstr& op, TileState& at) {
  at.kernels().copy(at.tile, {floats(op.a) + at.row * op.stride + at.column, at.tile.rows, at.tile.width, op.stride});
}

void run_sum_squares(const TileInstr& op, TileState& at) {
  at.kernels().sum_squares(at.tile, floats(op.a) + at.row * op.stride + at.column / 16, op.stride);
}

void run_quantize(const TileInstr& op, TileState& at) {
  at.kernels().quantize_q8a(at.tile, op.a + at.row * op.x_row_bytes, op.x_row_bytes, op.k, op.block + at.column / 32);
}

/// Stores the tile's heads into the KV cache: for each token the block's address plus the offset of the tile's first
/// head.
void run_kv_store(const TileInstr& op, TileState& at) {
  std::byte* heads[kTileTokens];
  const auto& io = *at.context.io;
  const std::size_t offset = op.kv_offset + at.column / op.head_dim * cpu::kv_head_bytes(op.dtype, op.head_dim);
  const auto& pool = at.context.blocks->kv[op.kv_group];
  const auto* numbers = io.block.data() + op.kv_group * io.slot.size() + at.row;
  for (std::size_t t = 0; t < at.tile.rows; ++t)
    heads[t] = pool.data + static_cast<std::size_t>(numbers[t]) * pool.block_stride + offset;
  op.store_kv(at.tile, op.dtype, op.head_dim, heads, io.slot.data() + at.row);
}

using RunOp = void (*)(const TileInstr& op, TileState& at);

/// Run functions by op kind; nullptr for sources and for kSumExperts, which run_experts.cc handles.
constexpr auto kRunOps = [] {
  constexpr std::pair<TileOpKind, RunOp> kPairs[] = {{TileOpKind::kInvRms, run_inv_rms},
                                                     {TileOpKind::kUnary, run_unary},
                                                     {TileOpKind::kBinary, run_binary},
                                                     {TileOpKind::kPairs, run_pairs},
                                                     {TileOpKind::kRope, run_rope},
                                                     {TileOpKind::kAddExpertVector, run_expert_vectors},
                                                     {TileOpKind::kScaleExpert, run_expert_factors},
                                                     {TileOpKind::kRmsNorm, run_rms_norm},
                                                     {TileOpKind::kLayerNorm, run_layer_norm},
                                                     {TileOpKind::kStore, run_store},
                                                     {TileOpKind::kSumSquares, run_sum_squares},
                                                     {TileOpKind::kQuantize, run_quantize},
                                                     {TileOpKind::kStoreK, run_kv_store},
                                                     {TileOpKind::kStoreV, run_kv_store}};
  std::array<RunOp, plan::kTileOpKinds> table{};
  for (const auto& [kind, run] : kPairs) table[static_cast<std::size_t>(kind)] = run;
  return table;
}();

}  // namespace

void run_tile_ops(const std::vector<TileInstr>& ops, std::size_t first, std::size_t last, cpu::Tile tile,
                  std::size_t row, std::size_t column, const StepContext& context) {
  TileState at{tile, row, column, context};
  for (std::size_t i = first; i < last; ++i)
    if (const auto run = kRunOps[static_cast<std::size_t>(ops[i].kind)]; run != nullptr) run(ops[i], at);
}

namespace {

std::size_t divide_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

constexpr std::size_t kFloatsInL1 = 4096;  ///< 16 KiB, half of an L1

/// Context of a tile step's tasks.
struct TileTasks {
  const CpuStep* step;
  StepContext* context;
  std::size_t rows, row_chunk, row_chunks;  ///< chunks of row_chunk rows
};

/// Rows [row, row_end) of columns [column, column + width), rows_at_once rows at a time (as many as the scratch holds).
void run_columns(const TileSection& section, std::size_t row, std::size_t row_end, std::size_t column,
                 std::size_t width, std::size_t rows_at_once, StepContext& context, std::size_t worker) {
  const std::size_t stride = tile_stride(width);
  for (; row < row_end; row += rows_at_once) {
    const cpu::Tile tile{context.scratch[worker].tile, std::min(rows_at_once, row_end - row), width, stride};
    run_source(section.ops[0], tile, row, column, context);
    // The whole tile is in L2. A few rows at a time run through all ops while they are in L1.
    const std::size_t together = std::max<std::size_t>(kFloatsInL1 / stride, 1);
    for (std::size_t t = 0; t < tile.rows; t += together)
      run_tile_ops(section.ops, 1, section.ops.size(),
                   {tile.data + t * stride, std::min(together, tile.rows - t), width, stride}, row + t, column,
                   context);
  }
}

/// A task of a step with many rows: one column tile and one chunk of rows. Neighbouring tasks share a column tile, so
/// its weights stay in the cache while chunks of rows pass.
void run_tile_task(void* data, std::size_t task, std::size_t worker) {
  const auto& tasks = *static_cast<const TileTasks*>(data);
  const std::size_t chunk = task % tasks.row_chunks;
  std::size_t column_tile = task / tasks.row_chunks;
  const TileSection* section = tasks.step->sections.data();
  for (;; ++section) {
    const std::size_t tiles = divide_up(section->end - section->begin, section->tile_width);
    if (column_tile < tiles) break;
    column_tile -= tiles;
  }
  const std::size_t column = column_tile * section->tile_width;
  const std::size_t width = std::min(section->tile_width, section->end - section->begin - column);
  run_columns(*section, chunk * tasks.row_chunk, std::min(tasks.rows, (chunk + 1) * tasks.row_chunk), column, width,
              section->tile_tokens, *tasks.context, worker);
}

/// A task of a step with few rows: one piece of columns, all rows.
void run_piece_task(void* data, std::size_t task, std::size_t worker) {
  const auto& tasks = *static_cast<const TileTasks*>(data);
  const TilePiece& piece = tasks.step->pieces[task];
  const std::size_t width = piece.end - piece.begin;
  run_columns(tasks.step->sections[piece.section], 0, tasks.rows, piece.begin, width,
              std::max<std::size_t>(kTileFloats / (width + quant::kX16Rows), 1), *tasks.context, worker);
}

/// Context of the tasks of a step on whole rows.
struct RowTasks {
  const CpuStep* step;
  StepContext* context;
  std::size_t rows, row_chunk;
};

/// Arranges rows [first, end): for each head all pieces, one after the other.
void run_arrange(const ArrangeStep& step, std::size_t first, std::size_t end) {
  for (std::size_t row = first; row < end; ++row) {
    float* to = step.out + row * step.out_stride;
    for (std::size_t head = 0; head < step.heads; ++head)
      for (const auto& piece : step.pieces) {
        if (piece.from == nullptr)
          std::fill_n(to, piece.width, 0.0F);
        else
          std::copy_n(piece.from + row * piece.row_floats + head * piece.head_floats, piece.width, to);
        to += piece.width;
      }
  }
}

/// A chunk of rows of an arrange, RoPE table, split, RMS norm, match_rms or gaussian_topk step.
void run_row_task(void* data, std::size_t task, std::size_t) {
  const auto& tasks = *static_cast<const RowTasks*>(data);
  const auto& row = tasks.step->row;
  const auto& kernels = *tasks.context->kernels;
  const std::size_t first = task * tasks.row_chunk, count = std::min(tasks.row_chunk, tasks.rows - first);
  if (tasks.step->kind == StepKind::kArrange) return run_arrange(tasks.step->arrange, first, first + count);
  if (tasks.step->kind == StepKind::kRopeTable) {
    cpu::rope_table(tasks.context->io->positions.data() + first, count, const_floats(row.a), row.dim, row.magnitude,
                    floats(row.out) + first * row.dim, row.dim);
    return;
  }
  const cpu::ConstTile x(const_floats(row.a) + first * row.a_stride, count, row.cols, row.a_stride);
  const cpu::Tile y{floats(row.out) + first * row.out_stride, count, row.cols, row.out_stride};
  if (tasks.step->kind == StepKind::kSplit) {
    const cpu::Tile second{floats(row.out2) + first * row.out2_stride, count, row.cols, row.out2_stride};
    for (std::size_t c = 0; c < row.cols; c += row.unit) {
      const float* from = x.data + 2 * c;
      kernels.copy({from, count, row.unit, x.stride}, {y.data + c, count, row.unit, y.stride});
      kernels.copy({from + row.unit, count, row.unit, x.stride}, {second.data + c, count, row.unit, second.stride});
    }
  } else if (tasks.step->kind == StepKind::kMatchRms) {
    cpu::match_rms(x, {const_floats(row.b) + first * row.b_stride, count, row.cols, row.b_stride}, y);
  } else if (tasks.step->kind == StepKind::kGaussianTopk) {
    cpu::gaussian_topk(x, row.cutoff, y);
  } else if (row.dim == row.cols) {
    kernels.rms_norm(x, const_floats(row.b), row.eps, y);
  } else {
    kernels.copy(x, y);
    kernels.rms_norm_heads(y, row.dim, const_floats(row.b), row.eps);
  }
}

/// Runs a tile step on all threads. Chunks of rows are halved until each thread has about kTasksPerThread tasks.
void run_tile_step(const CpuStep& step, StepContext& context, std::size_t rows) {
  TileTasks tasks{.step = &step, .context = &context, .rows = rows, .row_chunk = rows, .row_chunks = 1};
  // Few rows: one task per piece of columns. The pieces were computed when the plan was opened.
  if (rows <= kSplitRows) {
    context.pool->run(step.pieces.size(), run_piece_task, &tasks);
    return;
  }
  std::size_t column_tiles = 0;
  for (const auto& section : step.sections) column_tiles += divide_up(section.end - section.begin, section.tile_width);
  // Many rows: chunks of rows shrink, down to kLeast rows, while there are too few tasks to balance the threads.
  constexpr std::size_t kLeast = 4 * cpu::kMatmulTokens, kTasksPerThread = 4;
  tasks.row_chunk = tile_size(context.kernels->cpu_class).tokens;
  while (tasks.row_chunk > kLeast &&
         column_tiles * divide_up(rows, tasks.row_chunk) < kTasksPerThread * context.pool->size())
    tasks.row_chunk /= 2;
  tasks.row_chunks = divide_up(rows, tasks.row_chunk);
  context.pool->run(column_tiles * tasks.row_chunks, run_tile_task, &tasks);
}

}  // namespace

void run_step(const CpuStep& step, StepContext& context) {
  const std::size_t tokens = step.rows_are_logits ? context.io->row_count : context.io->tokens;
  const std::size_t rows = tokens * step.slots;
  switch (step.kind) {
    case StepKind::kExperts:
      if (rows > 0) run_experts(step, context, tokens);
      return;
    case StepKind::kRoute:
      if (rows > 0) run_route(step.route, context, tokens);
      return;
    case StepKind::kTile:
      if (rows > 0) run_tile_step(step, context, rows);
      return;
    case StepKind::kAttention:
      run_attention(step.attention, context);
      return;
    case StepKind::kSelfAttention:
      run_self_attention(step.self_attention, context);
      return;
    case StepKind::kSelectKeys:
      run_select_keys(step.select_keys, context);
      return;
    case StepKind::kRecurrent:
      run_recurrent(step.recurrent, context);
      return;
    case StepKind::kRopeFreqs:
      cpu::rope_frequencies(step.row.rope, floats(step.row.out));
      return;
    default: {
      if (rows == 0) return;
      RowTasks tasks{&step, &context, rows, 8};
      context.pool->run((rows + tasks.row_chunk - 1) / tasks.row_chunk, run_row_task, &tasks);
    }
  }
}

}  // namespace forge::runtime
