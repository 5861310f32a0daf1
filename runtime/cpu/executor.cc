#include "runtime/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cpu/load_weights.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

constexpr std::size_t kHugeBytes = std::size_t{2} << 20;

std::size_t kv_block_stride(const plan::ProgramT& program) {
  std::size_t bytes = 0;
  for (const auto& group : program.kv_groups) {
    if (group.layers() < 1 || group.layers() > 1 << 16 || group.kv_heads() < 1 || group.kv_heads() > 1 << 16 ||
        group.head_dim() < 1 || group.head_dim() > static_cast<std::int32_t>(cpu::kHeadDimMax) ||
        group.block_tokens() != static_cast<std::int32_t>(cpu::kKvBlockTokens) ||
        static_cast<std::size_t>(group.block_bytes()) !=
            cpu::kv_block_bytes(static_cast<std::size_t>(group.kv_heads()), static_cast<std::size_t>(group.head_dim())))
      throw Error(ErrorCode::kPlan, "the plan's KV geometry is broken", {}, "compile the plan again");
    bytes += static_cast<std::size_t>(group.layers()) * static_cast<std::size_t>(group.block_bytes());
  }
  return bytes;
}

/// Largest bound over all variants, of the member `get` reads.
template <class Get>
std::size_t largest(const plan::ProgramT& program, Get get) {
  std::int64_t most = 1;
  for (const auto& variant : program.variants)
    if (variant) most = std::max(most, get(variant->bounds));
  if (most > 1 << 24) throw Error(ErrorCode::kPlan, "a variant's bounds are absurd", {}, "compile the plan again");
  return static_cast<std::size_t>(most);
}
std::size_t most_tokens(const plan::ProgramT& p) {
  return largest(p, [](const auto& b) { return b.tokens(); });
}
std::size_t most_rows(const plan::ProgramT& p) {
  return largest(p, [](const auto& b) { return b.rows(); });
}
std::size_t most_sequences(const plan::ProgramT& p) {
  return largest(p, [](const auto& b) { return b.sequences(); });
}
std::size_t most_table_blocks(const plan::ProgramT& p) {
  return largest(p, [](const auto& b) { return b.table_blocks(); });
}

std::size_t checked_bytes(std::int64_t bytes, const char* what) {
  if (bytes < 0 || bytes > std::int64_t{1} << 44)
    throw Error(ErrorCode::kPlan, fmt::format("the plan's {} has an absurd size", what), {}, "compile the plan again");
  return static_cast<std::size_t>(bytes);
}

std::size_t output_bytes(const plan::ProgramT& program) {
  return most_rows(program) * checked_bytes(program.vocab, "vocabulary") * sizeof(float);
}

const cpu::Kernels& kernels_for(const plan::ProgramT& program) {
  constexpr std::string_view kPrefix = "cpu-";
  std::optional<cpu::CpuClass> wanted;
  if (program.target.starts_with(kPrefix)) wanted = cpu::parse(std::string_view(program.target).substr(kPrefix.size()));
  if (!wanted || !cpu::runs_here(*wanted))
    throw Error(ErrorCode::kPlan, "this machine cannot run the plan's program for '" + printable(program.target) + "'",
                fmt::format("its class is cpu-{}", cpu::name(cpu::detect())), "compile the model for this machine");
  return cpu::kernels(*wanted);
}

}  // namespace

std::int64_t CpuExecutor::blocks_for(std::int64_t context, std::int64_t sequences) {
  constexpr auto kTokens = static_cast<std::int64_t>(cpu::kKvBlockTokens);
  return (context + kTokens - 1) / kTokens * sequences;
}

MemoryNeed CpuExecutor::memory_need(const plan::ProgramT& program, std::int64_t kv_blocks) {
  const std::int64_t blocks = kv_blocks > 0 ? kv_blocks : blocks_for(program.context, program.batch_max);
  return {.weights = checked_bytes(program.weights_bytes, "weights block"),
          .arena = checked_bytes(program.arena_bytes, "arena"),
          .kv = checked_bytes(blocks, "KV pool") * kv_block_stride(program),
          .io = output_bytes(program)};
}

CpuExecutor::CpuExecutor(std::shared_ptr<const plan::ProgramT> program, WeightSource& model,
                         const ExecutorOptions& options)
    : program_(std::move(program)),
      kernels_(kernels_for(*program_)),
      vocab_(checked_bytes(program_->vocab, "vocabulary")),
      pool_(options.threads),
      profile_(options.profile) {
  const auto need = memory_need(*program_, options.kv_blocks);
  weights_ = MemoryBlock(need.weights, "the weights", need.weights >= kHugeBytes);
  arena_ = MemoryBlock(need.arena, "the arena", false);
  kv_ = MemoryBlock(need.kv, "the KV cache", false);
  output_ = MemoryBlock(need.io, "the logits", false);
  blocks_.kv_block_stride = kv_block_stride(*program_);
  blocks_.kv_blocks = blocks_.kv_block_stride == 0 ? 0 : need.kv / blocks_.kv_block_stride;
  blocks_.kv = kv_.data();
  blocks_.arena = {arena_.data(), arena_.bytes()};
  blocks_.weights = {weights_.data(), weights_.bytes()};
  blocks_.output = {output_.data(), output_.bytes()};
  // Constants and the file are only ever read through their refs; decoding refuses refs that write to them.
  blocks_.constants = {reinterpret_cast<std::byte*>(const_cast<std::uint8_t*>(program_->constants.data())),
                       program_->constants.size()};
  const auto file = model.data();
  blocks_.file = {const_cast<std::byte*>(file.data()), file.size()};
  size_io();
  for (const auto& variant : program_->variants) {
    if (variant == nullptr)
      throw Error(ErrorCode::kPlan, "a variant of the plan is missing", {}, "compile the plan again");
    variants_.push_back(decode_variant(*variant, *program_, blocks_, io_, kernels_));
  }
  if (variants_.empty()) throw Error(ErrorCode::kPlan, "the plan has no variants", {}, "compile the plan again");
  size_scratch();
  runtime::load_weights(*program_, model, weights_.data(), weights_.bytes(), pool_);
  for (const auto& variant : variants_) {
    auto& rows = profiles_.emplace_back();
    for (const auto& step : variant.steps) rows.push_back({.step = &step});
  }
}

void CpuExecutor::size_io() {
  const std::size_t tokens = most_tokens(*program_), sequences = most_sequences(*program_);
  io_.table_stride = most_table_blocks(*program_);
  for (auto* list : {&io_.ids, &io_.positions, &io_.sequence, &io_.block, &io_.slot}) list->assign(tokens, 0);
  io_.rows.assign(most_rows(*program_), 0);
  io_.kv_length.assign(sequences, 0);
  io_.block_table.assign(sequences * io_.table_stride, 0);
  context_.query_tiles.reserve(tokens);
}

void CpuExecutor::size_scratch() {
  std::size_t attention = 0, heads = 0, arrivals = 0;
  for (const auto& variant : variants_)
    for (const auto& step : variant.steps) {
      if (step.kind != StepKind::kAttention) continue;
      const auto& p = step.attention.params;
      attention = std::max(attention, cpu::attention_scratch_floats(kAttentionTokens, p.group, p.head_dim));
      heads = std::max(heads, kAttentionTokens * p.group * p.head_dim);
      arrivals = std::max(arrivals, step.attention.split_tokens * p.kv_heads);
    }
  const auto padded = [](std::size_t floats) { return (floats + 1023) / 1024 * 1024; };  // workers share no page
  const std::size_t worker = padded(kTileFloats) + padded(attention) + padded(heads);
  scratch_ = MemoryBlock(pool_.size() * worker * sizeof(float), "the threads' scratch", false);
  auto* next = reinterpret_cast<float*>(scratch_.data());
  for (std::size_t i = 0; i < pool_.size(); ++i, next += worker)
    context_.scratch.push_back({next, next + padded(kTileFloats), next + padded(kTileFloats) + padded(attention)});
  arrivals_ = std::vector<std::atomic<std::uint32_t>>(arrivals);
  context_.arrivals = &arrivals_;
  context_.kernels = &kernels_;
  context_.io = &io_;
  context_.blocks = &blocks_;
  context_.pool = &pool_;
}

std::size_t CpuExecutor::tokens_max() const {
  return most_tokens(*program_);
}
std::size_t CpuExecutor::rows_max() const {
  return most_rows(*program_);
}

const CpuVariant& CpuExecutor::choose_variant(const StepBatch& batch) const {
  for (const auto& variant : variants_)
    if (batch.ids.size() <= variant.tokens && batch.rows.size() <= variant.rows &&
        batch.kv_length.size() <= variant.sequences)
      return variant;
  throw Error(
      ErrorCode::kInternal, "a step is larger than every variant of the plan",
      fmt::format("{} tokens, {} rows, {} sequences", batch.ids.size(), batch.rows.size(), batch.kv_length.size()));
}

void CpuExecutor::take_inputs(const StepBatch& batch, const CpuVariant& variant) {
  const std::size_t tokens = batch.ids.size(), sequences = batch.kv_length.size();
  invariant(tokens > 0 && batch.positions.size() == tokens && batch.sequence.size() == tokens, "RT-001",
            "a step's inputs differ in length");
  invariant(batch.table_stride <= io_.table_stride && batch.block_table.size() >= sequences * batch.table_stride,
            "RT-002", "a block table is larger than the plan's");
  const auto in = [](std::int32_t value, std::size_t bound) {
    return value >= 0 && static_cast<std::size_t>(value) < bound;
  };
  for (std::size_t s = 0; s < sequences; ++s) {
    const std::size_t blocks = static_cast<std::size_t>(blocks_for(batch.kv_length[s], 1));
    invariant(batch.kv_length[s] > 0 && blocks <= batch.table_stride && blocks <= variant.table_blocks, "RT-003",
              "a sequence is longer than its block table");
    for (std::size_t i = 0; i < blocks; ++i) {
      const auto block = batch.block_table[s * batch.table_stride + i];
      invariant(in(block, blocks_.kv_blocks), "RT-004", "a block is not in the KV pool");
      io_.block_table[s * io_.table_stride + i] = block;
    }
    io_.kv_length[s] = batch.kv_length[s];
  }
  context_.query_tiles.clear();
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto sequence = batch.sequence[t], position = batch.positions[t];
    invariant(in(batch.ids[t], vocab_), "RT-005", "a token id is not in the vocabulary");
    invariant(in(sequence, sequences) &&
                  in(position, static_cast<std::size_t>(batch.kv_length[static_cast<std::size_t>(sequence)])),
              "RT-006", "a token's sequence or position does not exist");
    io_.ids[t] = batch.ids[t];
    io_.positions[t] = position;
    io_.sequence[t] = sequence;
    const std::size_t place = static_cast<std::size_t>(position);
    io_.block[t] = io_.block_table[static_cast<std::size_t>(sequence) * io_.table_stride + place / cpu::kKvBlockTokens];
    io_.slot[t] = static_cast<std::int32_t>(place % cpu::kKvBlockTokens);
    auto& tiles = context_.query_tiles;
    if (t > 0 && io_.sequence[t - 1] == sequence && tiles.back().count < kAttentionTokens)
      ++tiles.back().count;
    else
      tiles.push_back({t, 1});
  }
  for (std::size_t r = 0; r < batch.rows.size(); ++r) {
    invariant(in(batch.rows[r], tokens), "RT-007", "logits of a token that is not in the step");
    io_.rows[r] = batch.rows[r];
  }
  io_.tokens = tokens;
  io_.row_count = batch.rows.size();
  io_.sequences = sequences;
}

std::span<const float> CpuExecutor::forward(const StepBatch& batch) {
  const auto& variant = choose_variant(batch);
  take_inputs(batch, variant);
  if (!profile_) {
    for (const auto& step : variant.steps) run_step(step, context_);
  } else {
    auto& rows = profiles_[static_cast<std::size_t>(&variant - variants_.data())];
    for (std::size_t i = 0; i < variant.steps.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run_step(variant.steps[i], context_);
      rows[i].nanoseconds += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
      ++rows[i].calls;
    }
  }
  return {reinterpret_cast<const float*>(output_.data()), io_.row_count * vocab_};
}

}  // namespace forge::runtime
