// The engine's side of the decode loop: runs several steps on the device without planning in between. The scheduler's
// side is in steps_ahead.cc.

#include <algorithm>
#include <utility>

#include "runtime/engine/engine_core.h"

namespace forge::engine {

/// True if the device samples every row of the step, and its loop has room for so many sequences.
bool EngineCore::loops_with(std::size_t sequences) const {
  return device_ != nullptr && std::ranges::find(samplers_, nullptr) == samplers_.end() &&
         sequences <= device_->sequences_max();
}

/// Tries to start running ahead. Possible if the device's loop can have the step, and the scheduler can reserve KV
/// blocks for at least two steps.
bool EngineCore::try_run_ahead(const StepPlan& plan) {
  if (!loops_with(plan.parts.size())) return false;
  const auto steps = scheduler_.reserve(options_.steps_ahead);
  if (steps < 2) return false;
  find_masks(plan);
  begin_masks();
  ahead_ = {.plan = &plan, .steps = steps, .masked = masks_of_step() != nullptr};
  return true;
}

/// Starts the device's loop with the planned step as its first step.
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
                  .copies = batch.copies,
                  .state_read = batch.state_read,
                  .state_write = batch.state_write,
                  .masks = masks_of_step()});
}

/// Keeps the device busy with up to in_flight_max steps and processes the tokens of the oldest one, while the later
/// ones run.
bool EngineCore::step_ahead() {
  std::span<const std::int32_t> tokens;
  const bool ran = run([&] {
    if (ahead_.submitted == 0) start_loop(*ahead_.plan);
    // At least one step must be in flight, even when the loop is ending: the scheduler has planned or advanced to it
    // and waits for its tokens.
    const auto most = std::min(device_->in_flight_max(), scheduler_.in_flight_max());
    const auto goes_on = [&] {
      return !ahead_.ending && ahead_.submitted < ahead_.steps && device_->in_flight() < most;
    };
    while (device_->in_flight() == 0 || (!ahead_.masked && goes_on())) submit_ahead();
    if (ahead_.masked) {
      // The next step's forward pass follows on the device at once; its masks are begun when this step's tokens are
      // known, and computed while it runs.
      device_->sample(*this);
      if (goes_on()) submit_ahead();
    }
    tokens = device_->take();
  });
  end_masks();
  if (!ran) return true;
  ++metrics_.steps_ahead;
  metrics_.fed_tokens += scheduler_.running();
  watch_tokens([&] { finish_step_ahead(tokens); });
  return true;
}

void EngineCore::finish_step_ahead(std::span<const std::int32_t> tokens) {
  finish_step({.tokens = tokens, .logits = {}}, false);
  if (is_worth_leaving()) ahead_.ending = true;
  if (device_->in_flight() == 0 && (ahead_.ending || ahead_.submitted == ahead_.steps)) {
    end_ahead();
    append_forced();
  } else {
    forced_.clear();  // their masks force them
    scheduler_.advance();
    if (!ahead_.masked) return;
    find_masks(*ahead_.plan);
    begin_masks();
  }
}

void EngineCore::submit_ahead() {
  device_->submit();
  ++ahead_.submitted;
}

/// All steps have been taken. Returns unused KV reservations to the pool, so that the next turn can plan again.
void EngineCore::end_ahead() {
  ahead_ = {};
  scheduler_.settle();
}

/// Called before another loop or step. No step of the last loop is in flight then.
void EngineCore::stop_loop() {
  if (std::exchange(loop_open_, false)) device_->stop();
}

/// Stops the loop after a failure or at the end; its tokens are discarded. Returns false if that fails, i.e. the device
/// is lost.
bool EngineCore::drop_loop() noexcept {
  try {
    stop_loop();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace forge::engine
