// Opening and replaying a CPU program: memory, step inputs, scratch and the profile.

#include "runtime/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>

#include "runtime/cpu/column_split.h"
#include "runtime/cpu/load_weights.h"
#include "runtime/cpu/packed_weights.h"
#include "runtime/plan/step.h"
#include "runtime/program_bounds.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

/// Memory blocks of at least this size are requested with huge pages.
constexpr std::size_t kHugeBytes = std::size_t{2} << 20;

/// Bytes of one block over all layers of its group.
std::size_t kv_block_stride(const plan::KvGroup& group) {
  (void)kv_shape_of(group);  // throws if the geometry is invalid
  return static_cast<std::size_t>(group.layers()) * static_cast<std::size_t>(group.block_bytes());
}

/// Bytes of the step inputs that size_io() allocates.
std::size_t step_input_bytes(const plan::ProgramT& program, std::size_t groups) {
  const auto [tokens, rows, sequences, table_blocks, hidden_rows] = bounds_of(program);
  const auto in_table = checked_bytes(static_cast<std::int64_t>(sequences * table_blocks), "block table") * groups;
  const std::size_t token_bytes = 4 * sizeof(std::int32_t) + 1 + groups * sizeof(std::int32_t);
  return tokens * token_bytes +
         (std::max(rows, hidden_rows) + (program.recurrent_groups.empty() ? 1 : 3) * sequences + in_table) *
             sizeof(std::int32_t);
}

/// The kernel table of the CPU class that the program was compiled for. Throws if this machine cannot run it.
const cpu::Kernels& kernels_for(const plan::ProgramT& program) {
  const auto wanted = cpu::class_of_target(program.target);
  if (!facts_of(program).on_host || !wanted || !cpu::runs_here(*wanted))
    throw Error(ErrorCode::kPlan, "this machine cannot run the plan's program for '" + printable(program.target) + "'",
                "it runs programs for " + cpu::target_name(cpu::detect()), "compile the model for this machine");
  return cpu::kernels(*wanted);
}

}  // namespace

MemoryRequirements CpuExecutor::memory_need_of(const plan::ProgramT& program, std::int64_t kv_blocks,
                                               std::int64_t state_slots) {
  const auto rooms = runtime::kv_pool_sizes(program, kv_blocks);
  MemoryRequirements need{.weights = checked_bytes(program.weights_bytes, "weights block"),
                          .arena = checked_bytes(program.arena_bytes, "arena"),
                          .recurrent = recurrent_bytes(program, state_slots_for(program, state_slots)),
                          .io = step_input_bytes(program, rooms.size()) + logits_bytes(program)};
  for (std::size_t g = 0; g < rooms.size(); ++g) {
    const std::size_t bytes = rooms[g].blocks * kv_block_stride(program.kv_groups[g]);
    need.kv += bytes;
    if (rooms[g].window > 0) need.kv_windows += bytes;
  }
  return need;
}

CpuExecutor::CpuExecutor(std::shared_ptr<const plan::ProgramT> program, WeightSource& model,
                         const ExecutorOptions& options)
    : Executor(std::move(program), options.kv_blocks, options.state_slots),
      kernels_(kernels_for(*program_)),
      need_(memory_need_of(*program_, options.kv_blocks, options.state_slots)),
      pool_(options.threads),
      kv_blocks_(kv_context_blocks(*program_, options.kv_blocks)),
      profile_(options.profile) {
  // Weights are mapped from the cache if an entry fits. Otherwise memory is allocated here and filled below, after all
  // steps are decoded.
  std::optional<PackedWeights> packed;
  if (options.packed != nullptr) packed.emplace(*options.packed, *program_);
  auto begin = std::chrono::steady_clock::now();
  const auto add_load_time = [&] {
    load_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  if (packed) weights_ = packed->find(pool_);
  load_.mapped_bytes = weights_.bytes();
  add_load_time();
  const bool mapped = weights_.data() != nullptr;
  if (!mapped) weights_ = MemoryBlock(need_.weights, "the weights", need_.weights >= kHugeBytes);
  arena_ = MemoryBlock(need_.arena, "the arena", false);
  kv_ = MemoryBlock(need_.kv, "the KV cache", need_.kv >= kHugeBytes);
  output_ = MemoryBlock(logits_bytes(*program_), "the logits", false);
  // The KV pools of all groups are parts of one block of memory.
  std::byte* pool = kv_.data();
  for (std::size_t g = 0; g < kv_pool_sizes().size(); ++g) {
    blocks_.kv.push_back({.data = pool, .block_stride = kv_block_stride(program_->kv_groups[g])});
    pool += kv_pool_sizes()[g].blocks * blocks_.kv.back().block_stride;
  }
  recurrent_ = MemoryBlock(need_.recurrent, "the recurrent state", need_.recurrent >= kHugeBytes);
  std::byte* states = recurrent_.data();
  for (const auto& group : program_->recurrent_groups) {
    const auto layer_bytes = static_cast<std::size_t>(group.slot_bytes());
    const std::size_t slot_bytes = layer_bytes * static_cast<std::size_t>(group.layers());
    blocks_.recurrent.push_back({.data = states, .layer_bytes = layer_bytes, .slot_bytes = slot_bytes});
    states += slot_bytes * state_slots();
  }
  blocks_.arena = {arena_.data(), arena_.bytes()};
  blocks_.weights = {weights_.data(), weights_.bytes()};
  blocks_.output = {output_.data(), output_.bytes()};
  // Constants and files are read-only: decoding rejects operands that would write to them, so const_cast is safe.
  blocks_.constants = {reinterpret_cast<std::byte*>(const_cast<std::uint8_t*>(program_->constants.data())),
                       program_->constants.size()};
  for (std::uint32_t file = 0; file < model.files(); ++file) {
    const auto data = model.data(file);
    blocks_.files.push_back({const_cast<std::byte*>(data.data()), data.size()});
  }
  size_io();
  for (const auto& variant : program_->variants) {
    if (variant == nullptr)
      throw Error(ErrorCode::kPlan, "a variant of the plan is missing", {}, "compile the plan again");
    variants_.push_back(decode_variant(*variant, *program_, blocks_, io_, kernels_));
  }
  if (variants_.empty()) throw Error(ErrorCode::kPlan, "the plan has no variants", {}, "compile the plan again");
  // The split depends on the number of threads, which the plan does not contain.
  for (auto& variant : variants_)
    for (auto& step : variant.steps) step.pieces = split_columns(step.sections, pool_.size());
  size_scratch();
  begin = std::chrono::steady_clock::now();
  if (!mapped) {
    load_.bytes = load_weights(*program_, model, weights_.data(), weights_.bytes(), kernels_, pool_);
    if (packed) packed->keep({weights_.data(), weights_.bytes()}, pool_);
  }
  add_load_time();
  for (const auto& variant : variants_) times_.emplace_back(variant.steps.size());
}

// Vectors are sized for the largest variant here and never resized: decoded steps hold their addresses.
void CpuExecutor::size_io() {
  const auto [tokens, rows, sequences, table_blocks, hidden_rows] = bounds_of(*program_);
  const std::size_t groups = kv_pool_sizes().size();
  io_.table_stride = table_blocks;
  io_.group_stride = sequences * table_blocks;
  for (auto* list : {&io_.ids, &io_.positions, &io_.sequence, &io_.slot}) list->assign(tokens, 0);
  io_.prompt.assign(tokens, 0);
  io_.block.assign(groups * tokens, 0);
  io_.rows.assign(std::max(rows, hidden_rows), 0);
  io_.kv_length.assign(sequences, 0);
  if (state_slots() > 0)
    for (auto* list : {&io_.state_read, &io_.state_write}) list->assign(sequences, 0);
  io_.block_table.assign(groups * io_.group_stride, 0);
  context_.query_tiles.reserve(tokens);
  context_.sequence_runs.reserve(sequences);
  context_.self_positions.resize(tokens);
  context_.self_places.resize(tokens);
  context_.self_slots.resize(tokens);
  context_.self_blocks.reserve(sequences);
  context_.self_keys.resize(tokens);
  context_.self_values.resize(tokens);
  context_.block_numbers.resize(cpu::self_attention_blocks(tokens, 1));
  std::iota(context_.block_numbers.begin(), context_.block_numbers.end(), 0);
}

// Scratch per worker, each part padded to 4 KiB: | tile | attention | heads | sums | (WorkerScratch).
void CpuExecutor::size_scratch() {
  std::size_t attention = 0, heads = 0, arrivals = 0, sums = 0, slots = 0, experts = 0;
  for (const auto& variant : variants_)
    for (const auto& step : variant.steps) {
      if (step.kind == StepKind::kExperts) {
        const std::size_t tokens = step.rows_are_logits ? variant.rows : variant.tokens;
        slots = std::max(slots, tokens * step.slots);
        experts = std::max(experts, step.sections[0].ops[0].experts);
        for (const auto& section : step.sections)
          if (section.sum_at > 0) sums = std::max(sums, std::min(tokens, kSumTokens) * section.tile_width);
      }
      if (step.kind != StepKind::kAttention && step.kind != StepKind::kSelfAttention) continue;
      const auto& p = step.kind == StepKind::kAttention ? step.attention.params : step.self_attention.params;
      attention = std::max(attention, cpu::attention_scratch_floats(kAttentionTokens, p.group, p.kv));
      heads = std::max(heads, kAttentionTokens * p.group * p.kv.value_dim);
      if (step.kind != StepKind::kAttention) continue;
      arrivals = std::max(arrivals, step.attention.split_tokens * p.kv.heads);
    }
  const auto padded = [](std::size_t floats) {
    return (floats + 1023) / 1024 * 1024;
  };  // 4 KiB: no page is shared by two workers
  const std::size_t worker = padded(kTileFloats) + padded(attention) + padded(heads) + padded(sums);
  scratch_ = MemoryBlock(pool_.size() * worker * sizeof(float), "the worker threads' scratch", false);
  auto* next = reinterpret_cast<float*>(scratch_.data());
  for (std::size_t i = 0; i < pool_.size(); ++i, next += worker)
    context_.scratch.push_back({next, next + padded(kTileFloats), next + padded(kTileFloats) + padded(attention),
                                next + padded(kTileFloats) + padded(attention) + padded(heads)});
  arrivals_ = std::vector<std::atomic<std::uint32_t>>(arrivals);
  context_.experts.reserve(slots, experts);
  context_.arrivals = &arrivals_;
  context_.kernels = &kernels_;
  context_.io = &io_;
  context_.blocks = &blocks_;
  context_.pool = &pool_;
}

/// Copies the batch into the step inputs, copies KV blocks that forked sequences need, and derives per-token values:
/// the block and slot where K and V are stored, and the query tiles of attention.
void CpuExecutor::take_batch(const StepBatch& batch, const CpuVariant& variant) {
  copy_checked_inputs(batch,
                      {.vocab = vocab(),
                       .rooms = kv_pool_sizes(),
                       .block_tokens = cpu::kKvBlockTokens,
                       .table_blocks = variant.table_blocks,
                       .state_slots = state_slots()},
                      {.ids = io_.ids.data(),
                       .positions = io_.positions.data(),
                       .sequence = io_.sequence.data(),
                       .rows = io_.rows.data(),
                       .kv_length = io_.kv_length.data(),
                       .block_table = io_.block_table.data(),
                       .state_read = io_.state_read.data(),
                       .state_write = io_.state_write.data(),
                       .table_stride = io_.table_stride,
                       .group_stride = io_.group_stride});
  // Copy-on-write of KV blocks: a sequence that forked, or continues a partly shared block, gets its own copy first.
  for (const auto& copy : batch.copies)
    for (std::size_t g = 0; g < kv_pool_sizes().size(); ++g) {
      if (!copy_applies_to(copy, kv_pool_sizes(), g)) continue;
      const auto [data, stride] = blocks_.kv[g];
      std::memmove(data + static_cast<std::size_t>(copy.to) * stride,
                   data + static_cast<std::size_t>(copy.from) * stride, stride);
    }
  io_.tokens = batch.ids.size();
  std::fill_n(io_.prompt.begin(), io_.tokens, std::uint8_t{0});
  std::ranges::copy(batch.prompt, io_.prompt.begin());
  io_.row_count = batch.rows.size();
  io_.sequences = batch.kv_length.size();
  context_.query_tiles.clear();
  context_.sequence_runs.clear();
  for (std::size_t t = 0; t < io_.tokens; ++t) {
    const auto sequence = static_cast<std::size_t>(io_.sequence[t]), place = static_cast<std::size_t>(io_.positions[t]);
    for (std::size_t g = 0; g < kv_pool_sizes().size(); ++g)
      io_.block[g * io_.slot.size() + t] =
          io_.block_table[g * io_.group_stride + sequence * io_.table_stride + place / cpu::kKvBlockTokens];
    io_.slot[t] = static_cast<std::int32_t>(place % cpu::kKvBlockTokens);
    auto& runs = context_.sequence_runs;
    if (runs.empty() || runs.back().sequence != sequence)
      runs.push_back({.sequence = sequence, .token = t, .count = 1});
    else
      ++runs.back().count;
    auto& tiles = context_.query_tiles;
    if (t > 0 && io_.sequence[t - 1] == io_.sequence[t] && tiles.back().count < kAttentionTokens)
      ++tiles.back().count;
    else
      tiles.push_back({t, 1});
  }
}

/// Runs all steps, with a clock reading between two steps.
void CpuExecutor::run_measured(const CpuVariant& variant) {
  const auto place = static_cast<std::size_t>(&variant - variants_.data());
  const std::int64_t first = StepTrace::now_ns();
  std::int64_t begin = first;
  // A step's costs in the plan are those of a full variant; the profile scales them by the fraction that was used.
  const double tokens = static_cast<double>(io_.tokens) / static_cast<double>(variant.tokens);
  const double rows = static_cast<double>(io_.row_count) / static_cast<double>(variant.rows);
  for (std::size_t i = 0; i < variant.steps.size(); ++i) {
    run_step(variant.steps[i], context_);
    const std::int64_t end = StepTrace::now_ns();
    times_[place][i].nanoseconds += static_cast<std::uint64_t>(end - begin);
    times_[place][i].filled += variant.steps[i].rows_are_logits ? rows : tokens;
    ++times_[place][i].calls;
    if (trace_ != nullptr) trace_->step(place, i, begin, end);
    begin = end;
  }
  if (trace_ != nullptr) trace_->forward(place, io_.tokens, first, begin);
  for (std::size_t i = 0; i < variant.steps.size(); ++i)
    if (variant.steps[i].kind == StepKind::kAttention) count_positions(variant.steps[i], times_[place][i]);
}

/// Adds to `time` what an attention step of this batch reads of keys and values (each sequence once) and its FLOPs.
void CpuExecutor::count_positions(const CpuStep& step, StepTime& time) const {
  const auto& p = step.attention.params;
  std::vector<double> first(io_.sequences);  // first position that any token of the sequence sees
  for (std::size_t s = 0; s < io_.sequences; ++s) first[s] = io_.kv_length[s];
  double seen = 0;  // positions, summed over all tokens
  for (std::size_t t = 0; t < io_.tokens; ++t) {
    const double end = io_.positions[t] + 1, begin = cpu::attention_first_position(p, io_.positions[t]);
    auto& lowest = first[static_cast<std::size_t>(io_.sequence[t])];
    lowest = std::min(lowest, begin);
    const double selected = static_cast<double>(step.attention.selected_count * step.attention.selected_block);
    seen += step.attention.selected == nullptr ? end - begin : std::min(end - begin, selected);
  }
  const double block_bytes = static_cast<double>(cpu::kv_block_bytes(p.kv));
  for (std::size_t s = 0; s < io_.sequences; ++s)
    time.kv_bytes += (io_.kv_length[s] - first[s]) * block_bytes / cpu::kKvBlockTokens;
  time.kv_flops += 2 * seen * static_cast<double>(p.kv.heads * p.group * (p.kv.head_dim + p.kv.value_dim));
}

std::span<const float> CpuExecutor::forward(const StepBatch& batch) {
  const auto& variant = choose_variant(variants_, batch);
  take_batch(batch, variant);
  if (profile_ || trace_ != nullptr)
    run_measured(variant);
  else
    for (const auto& step : variant.steps) run_step(step, context_);
  return {reinterpret_cast<const float*>(output_.data()),
          io_.row_count * (batch.hidden ? variant.hidden_width : vocab())};
}

std::vector<StepProfile> CpuExecutor::profile() const {
  std::vector<StepProfile> rows;
  for (std::size_t v = 0; v < variants_.size(); ++v)
    for (std::size_t i = 0; i < variants_[v].steps.size(); ++i) {
      const auto& step = variants_[v].steps[i];
      rows.push_back({.variant = variants_[v].name,
                      .label = step.label,
                      .kernel = plan::kernel_name(*program_, *program_->variants[v]->steps[i]),
                      .layer = step.layer,
                      .calls = times_[v][i].calls,
                      .nanoseconds = times_[v][i].nanoseconds,
                      .filled = times_[v][i].filled,
                      .kv_bytes = times_[v][i].kv_bytes,
                      .kv_flops = times_[v][i].kv_flops,
                      .weight_bytes = step.weight_bytes,
                      .activation_bytes = step.activation_bytes,
                      .flops = step.flops});
    }
  return rows;
}

}  // namespace forge::runtime
