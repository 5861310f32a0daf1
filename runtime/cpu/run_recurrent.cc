// Runs steps with recurrent state. A task is one sequence's run of tokens in one head and some of its columns; tasks
// change different parts of a state, so their order does not matter.

#include <algorithm>

#include "runtime/cpu/run_steps.h"

namespace forge::runtime {
namespace {

/// What one task computes.
struct StatePart {
  std::size_t token = 0, count = 0;  ///< the run of tokens
  std::size_t head = 0, key_head = 0;
  std::size_t column = 0, columns = 0;  ///< columns of the head
  const float* read = nullptr;          ///< state of the head from `column` on; nullptr: zeros
  float* write = nullptr;
};

cpu::TokenFloats at(const cpu::TokenFloats& rows, const StatePart& part, std::size_t column) {
  return {rows.data + part.token * rows.stride + column, rows.stride};
}

/// The members that all calls have.
template <class Call>
Call call_of(const Call& step, const RecurrentStep& of, const StatePart& part) {
  Call call = step;
  call.tokens = part.count;
  call.columns = part.columns;
  call.read = part.read;
  call.write = part.write;
  call.state_stride = of.columns;
  call.out = step.out + part.token * step.out_stride + part.head * of.columns + part.column;
  return call;
}

void run_conv(const RecurrentStep& step, const StatePart& part, const cpu::Kernels& kernels) {
  auto call = call_of(step.conv, step, part);
  call.x = at(step.conv.x, part, part.column);
  call.kernel = step.conv.kernel + part.column * call.taps;
  if (call.bias != nullptr) call.bias += part.column;
  kernels.short_conv(call);
  if (step.activation != nullptr) step.activation({call.out, part.count, part.columns, call.out_stride}, nullptr);
}

void run_delta(const RecurrentStep& step, const StatePart& part, const cpu::Kernels& kernels) {
  auto call = call_of(step.delta, step, part);
  call.q = at(step.delta.q, part, part.key_head * step.rows);
  call.k = at(step.delta.k, part, part.key_head * step.rows);
  call.v = at(step.delta.v, part, part.head * step.columns + part.column);
  call.decay = at(step.delta.decay, part, part.head * (call.decay_each_row ? step.rows : 1));
  call.beta = at(step.delta.beta, part, part.head);
  kernels.delta_rule(call);
}

void run_scan(const RecurrentStep& step, const StatePart& part, const cpu::Kernels& kernels) {
  auto call = call_of(step.scan, step, part);
  const bool channels = step.kind == RecurrentStep::Kind::kScanChannels;
  const std::size_t column = part.head * step.columns + part.column, head = channels ? column : part.head;
  call.x = at(step.scan.x, part, column);
  call.dt = at(step.scan.dt, part, head);
  call.b = at(step.scan.b, part, part.key_head * step.rows);
  call.c = at(step.scan.c, part, part.key_head * step.rows);
  call.a += head * (call.a_each_state ? step.rows : 1);
  call.d += head;
  (channels ? kernels.scan_channels : kernels.scan_head)(call);
}

void run_rwkv(const RecurrentStep& step, const StatePart& part, const cpu::Kernels& kernels) {
  auto call = call_of(step.rwkv, step, part);
  const std::size_t head = part.head * step.columns;
  call.r = at(step.rwkv.r, part, head);
  call.w = at(step.rwkv.w, part, head);
  call.k = at(step.rwkv.k, part, head);
  call.v = at(step.rwkv.v, part, head + part.column);
  call.a = at(step.rwkv.a, part, head);
  call.b = at(step.rwkv.b, part, head);
  kernels.rwkv7(call);
}

struct RecurrentTasks {
  const RecurrentStep* step;
  StepContext* context;
  std::size_t width;  ///< columns of a task
  std::size_t parts;  ///< tasks of a head
};

/// The part of task number `task`; tasks are ordered by sequence, head and columns.
StatePart part_of(const RecurrentTasks& tasks, std::size_t task) {
  const auto& step = *tasks.step;
  const auto& io = *tasks.context->io;
  const auto& run = tasks.context->sequence_runs[task / (step.heads * tasks.parts)];
  const std::size_t head = task / tasks.parts % step.heads, column = task % tasks.parts * tasks.width;
  const auto& pool = tasks.context->blocks->recurrent[step.group];
  const auto state = [&](std::int32_t slot) {
    std::byte* layer = pool.data + static_cast<std::size_t>(slot) * pool.slot_bytes + step.layer_offset;
    return reinterpret_cast<float*>(layer) + head * step.rows * step.columns + column;
  };
  const std::int32_t from = io.state_read[run.sequence];
  return {.token = run.token,
          .count = run.count,
          .head = head,
          .key_head = step.interleaved ? head % step.key_heads : head / (step.heads / step.key_heads),
          .column = column,
          .columns = std::min(tasks.width, step.columns - column),
          .read = from < 0 ? nullptr : state(from),
          .write = state(io.state_write[run.sequence])};
}

void run_state_task(void* data, std::size_t task, std::size_t) {
  const auto& tasks = *static_cast<const RecurrentTasks*>(data);
  const StatePart part = part_of(tasks, task);
  const auto& kernels = *tasks.context->kernels;
  switch (tasks.step->kind) {
    case RecurrentStep::Kind::kShortConv:
      return run_conv(*tasks.step, part, kernels);
    case RecurrentStep::Kind::kDeltaRule:
      return run_delta(*tasks.step, part, kernels);
    case RecurrentStep::Kind::kScanHead:
    case RecurrentStep::Kind::kScanChannels:
      return run_scan(*tasks.step, part, kernels);
    case RecurrentStep::Kind::kRwkv7:
      return run_rwkv(*tasks.step, part, kernels);
  }
}

}  // namespace

// Tasks are kStateColumns wide; with few of them and many threads they are halved, down to 16 columns.
void run_recurrent(const RecurrentStep& step, StepContext& context) {
  RecurrentTasks tasks{.step = &step, .context = &context, .width = kStateColumns, .parts = 1};
  const std::size_t heads = step.heads * context.sequence_runs.size();
  const auto parts = [&] { return (step.columns + tasks.width - 1) / tasks.width; };
  while (tasks.width > 16 && heads * parts() < 4 * context.pool->size()) tasks.width /= 2;
  tasks.parts = parts();
  context.pool->run(heads * tasks.parts, run_state_task, &tasks);
}

}  // namespace forge::runtime
