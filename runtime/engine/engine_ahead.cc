// Steps that the device runs ahead of the host: each feeds what the last one chose.

#include <algorithm>
#include <utility>

#include "runtime/engine/engine_core.h"

namespace forge::engine {

/// Whether the plan is the first of several steps, each of which feeds what the last one chose.
bool EngineCore::goes_ahead(const StepPlan& plan) {
  if (std::ranges::find(samplers_, nullptr) != samplers_.end() || plan.parts.size() > device_->sequences_max())
    return false;
  const auto steps = scheduler_.reserve(options_.steps_ahead);
  if (steps < 2) return false;
  ahead_ = {.plan = &plan, .steps = steps};
  return true;
}

void EngineCore::start_loop(const StepPlan& plan) {
  stop_loop();
  const auto batch = batch_.build(plan);
  loop_open_ = true;
  device_->start({.ids = batch.ids,
                  .positions = batch.positions,
                  .samplers = samplers_,
                  .block_table = batch.block_table,
                  .table_stride = batch.table_stride,
                  .steps_max = static_cast<std::int64_t>(ahead_.steps),
                  .copies = batch.copies});
}

/// Takes the oldest step in flight; the device has others to do while the host gives its tokens on.
bool EngineCore::step_ahead() {
  std::span<const std::int32_t> tokens;
  const bool ran = run([&] {
    if (ahead_.submitted == 0) start_loop(*ahead_.plan);
    // The scheduler's step is in flight whatever ends meanwhile.
    while (device_->in_flight() == 0 ||
           (!ahead_.ending && ahead_.submitted < ahead_.steps && device_->in_flight() < device_->in_flight_max())) {
      device_->submit();
      ++ahead_.submitted;
    }
    tokens = device_->take();
  });
  if (!ran) return true;
  ++metrics_.steps_ahead;
  metrics_.fed_tokens += scheduler_.running();
  finish_step({.tokens = tokens, .logits = {}}, false);
  if (device_->in_flight() == 0 && (ahead_.ending || ahead_.submitted == ahead_.steps))
    end_ahead();
  else
    scheduler_.advance();
  return true;
}

void EngineCore::end_ahead() {
  ahead_ = {};
  scheduler_.settle();
}

/// Before another loop or step; nothing of the last loop is in flight.
void EngineCore::stop_loop() {
  if (std::exchange(loop_open_, false)) device_->stop();
}

/// After a failure, or at the end: nobody waits for the loop's tokens any more. False: the device is lost.
bool EngineCore::drop_loop() noexcept {
  try {
    stop_loop();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace forge::engine
