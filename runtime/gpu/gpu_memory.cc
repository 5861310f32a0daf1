#include "runtime/gpu/gpu_memory.h"

#include <algorithm>

#include "kernels/gpu/step_io.h"
#include "kernels/quant/dtype.h"
#include "runtime/gpu/weight_upload.h"
#include "runtime/program_bounds.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

[[noreturn]] void fail(const char* what) {
  throw Error(ErrorCode::kPlan, what, {}, "compile the model again (forge-compile)");
}

/// True if the pool's type can hold rows of so many columns (the formats of kernels/gpu/kv_pool.h).
bool holds_rows(const plan::KvGroup& group, std::int64_t columns) {
  constexpr std::int64_t kFp8Columns = 16;  // a lane's load
  const auto type = static_cast<DType>(group.dtype());
  const bool of_heads = type == DType::kQ8_0 || type == DType::kQ4_0 || type == DType::kFp8;
  const auto multiple = type == DType::kFp8 ? kFp8Columns : static_cast<std::int64_t>(dtype_info(type).block_elems);
  return (type == DType::kF16 || (of_heads && !group.shared_row())) && columns % multiple == 0;
}

/// Checks a group's geometry and returns the bytes of one block in all its layers.
std::size_t group_stride(const plan::KvGroup& group) {
  const auto in = [](std::int64_t value, std::int64_t high) { return value >= 1 && value <= high; };
  if (!in(group.layers(), 1 << 16) || !in(group.kv_heads(), 1 << 16) || !in(group.head_dim(), 1 << 16) ||
      !in(group.block_tokens(), 1 << 12) || !in(group.value_dim(), group.shared_row() ? group.head_dim() : 1 << 16) ||
      !holds_rows(group, group.head_dim()) || !holds_rows(group, group.value_dim()))
    fail("the plan's KV geometry is broken");
  if (const KvPlanes planes(group); group.block_bytes() != static_cast<std::int64_t>(planes.keys + planes.values))
    fail("the plan's KV geometry is broken");
  return static_cast<std::size_t>(group.layers()) * static_cast<std::size_t>(group.block_bytes());
}

/// Lays out one variant's inputs from offset `begin` on. groups: KV groups; states: the program has recurrent state.
StepIoLayout layout_of(const plan::Bounds& bounds, std::size_t groups, bool states, std::size_t begin) {
  const auto in = [](std::int64_t value) { return value >= 1 && value <= 1 << 24; };
  if (!in(bounds.tokens()) || !in(bounds.rows()) || !in(bounds.sequences()) || !in(bounds.table_blocks()))
    fail("a variant's bounds are out of range");
  const auto tokens = static_cast<std::size_t>(bounds.tokens()), rows = static_cast<std::size_t>(bounds.rows()),
             sequences = static_cast<std::size_t>(bounds.sequences()),
             blocks = static_cast<std::size_t>(bounds.table_blocks());
  StepIoLayout out{.begin = begin};
  std::size_t next = begin;
  const auto place = [&](std::size_t& at, std::size_t bytes) {
    at = next;
    next += gpu_aligned(bytes);
  };
  place(out.counts, 4 * sizeof(std::int32_t));
  place(out.sampling, rows * sizeof(gpu::SamplingRow));
  place(out.ids, tokens * sizeof(std::int32_t));
  place(out.positions, tokens * sizeof(std::int32_t));
  place(out.sequence, tokens * sizeof(std::int32_t));
  place(out.rows, rows * sizeof(std::int32_t));
  place(out.kv_length, sequences * sizeof(std::int32_t));
  if (states) {
    place(out.state_read, sequences * sizeof(std::int32_t));
    place(out.state_write, sequences * sizeof(std::int32_t));
  }
  out.table_bytes = sequences * blocks * sizeof(std::int32_t);
  place(out.block_table, groups * out.table_bytes);
  out.end = next;
  return out;
}

}  // namespace

GpuMemory::GpuMemory(const plan::ProgramT& program, std::int64_t wanted_kv_blocks, std::int64_t state_slots) {
  const auto blocks = kv_context_blocks(program, wanted_kv_blocks);
  kv_blocks = checked_bytes(blocks, "KV pool");
  kv_pool_sizes = runtime::kv_pool_sizes(program, blocks);
  for (std::size_t g = 0; g < kv_pool_sizes.size(); ++g) {
    kv_groups.push_back(need.kv);
    const std::size_t bytes = gpu_aligned(kv_pool_sizes[g].blocks * group_stride(program.kv_groups[g]));
    need.kv += bytes;
    if (kv_pool_sizes[g].window > 0) need.kv_windows += bytes;
    if (need.kv > std::size_t{1} << 46) fail("the size of the plan's KV pool is out of range");
  }
  const auto slots = state_slots_for(program, state_slots);
  (void)recurrent_bytes(program, slots);  // throws if a number is out of range
  for (const auto& group : program.recurrent_groups) {
    states.push_back(need.recurrent);
    need.recurrent += gpu_aligned(checked_bytes(group.layers() * group.slot_bytes() * slots, "recurrent state"));
  }
  // The other blocks. Constants lie behind the weights, in the same block.
  constants = gpu_aligned(checked_bytes(program.weights_bytes, "weights block"));
  need.weights = constants + gpu_aligned(program.constants.size());
  need.arena = gpu_aligned(checked_bytes(program.arena_bytes, "arena"));
  counters_bytes = gpu_aligned(checked_bytes(program.counter_bytes, "counters"));
  inputs_end = counters_bytes;
  for (const auto& variant : program.variants) {
    if (variant == nullptr) fail("a variant of the plan is missing");
    inputs.push_back(layout_of(variant->bounds, kv_pool_sizes.size(), !states.empty(), inputs_end));
    inputs_end = inputs.back().end;
  }
  if (inputs.empty()) fail("the plan has no variants");
  logits = inputs_end;
  logits_bytes = runtime::logits_bytes(program);
  masks = logits + gpu_aligned(logits_bytes);
  mask_bytes = (checked_bytes(program.vocab, "vocabulary") + 31) / 32 * sizeof(std::uint32_t);
  std::size_t mask_rows = 0;  // of steps that sample: a row for each sequence
  for (const auto& variant : program.variants)
    if (!variant->sample_steps.empty())
      mask_rows =
          std::max(mask_rows, static_cast<std::size_t>(std::min(variant->bounds.rows(), variant->bounds.sequences())));
  need.io = masks + gpu_aligned(mask_rows * mask_bytes);
  sampled_bytes = gpu::kSampledRing * bounds_of(program).rows * sizeof(std::int32_t);
  staging_slot = staging_slot_bytes(program);
  need.staging = staging_slot * kStagingSlots;
}

}  // namespace forge::runtime
