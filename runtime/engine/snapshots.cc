// The scheduler's side of recurrent state: where snapshots are kept.

#include <algorithm>

#include "runtime/engine/scheduler.h"
#include "runtime/engine/scheduler_job.h"

namespace forge::engine {

bool Scheduler::keeps_states() const {
  return limits_.reuse_prefixes && pool_.keeps_states();
}

/// The last position at or before `tokens` at which the pool can keep the state: with sliding windows, whole blocks.
std::size_t Scheduler::snapshot_at(std::size_t tokens) const {
  const auto& pool = pool_.limits();
  return pool.windows.empty() ? tokens : tokens / pool.block_tokens * pool.block_tokens;
}

/// Sets the positions that follow from the prompt: its end, and the end of its last whole turn.
void Scheduler::set_snapshots(Job& job) const {
  job.prompt_end = snapshot_at(job.ids.size());
  job.turn_end = snapshot_at(runtime::last_turn_end(job.ids, limits_.turn_ends));
}

/// The next position behind the computed tokens at which a snapshot is kept; SIZE_MAX if there is none.
std::size_t Scheduler::next_snapshot(const Job& job) const {
  if (!keeps_states()) return SIZE_MAX;
  const std::size_t fed = job.fed();
  std::size_t next = SIZE_MAX;
  const auto consider = [&](std::size_t position) {
    if (position > fed) next = std::min(next, position);
  };
  consider(job.wanted);
  if (job.hidden()) return next;
  for (const auto position : {job.turn_end, job.branch, job.prompt_end}) consider(position);
  if (limits_.state_interval > 0) consider((fed / limits_.state_interval + 1) * limits_.state_interval);
  return next;
}

/// True if a snapshot is to be kept behind the first `fed` tokens.
bool Scheduler::is_snapshot(const Job& job, std::size_t fed) const {
  const bool regular = limits_.state_interval > 0 && fed % limits_.state_interval == 0;
  return fed == job.wanted ||
         (!job.hidden() && (regular || fed == job.turn_end || fed == job.branch || fed == job.prompt_end));
}

/// Call after a step: what it computed can be reused, and what the next one does not see is given back.
void Scheduler::hand_over(Job& job) {
  if (limits_.reuse_prefixes) job.kv->publish(std::span(job.ids).first(job.fed()));
  job.kv->release_outside_window();
  if (is_snapshot(job, job.fed())) keep_state(job);
}

void Scheduler::keep_state(Job& job) {
  if (keeps_states()) (void)job.kv->keep_state(std::span(job.ids).first(job.fed()));
}

}  // namespace forge::engine
