// The scheduler's side of a decode loop on the device: reserve(), advance() and settle().

#include <algorithm>

#include "runtime/engine/scheduler.h"
#include "runtime/engine/scheduler_job.h"
#include "support/error.h"

namespace forge::engine {

/// Tries `steps`, then half as many and so on, until the pool has the KV blocks for all sequences.
std::size_t Scheduler::reserve(std::size_t steps) {
  invariant(in_flight_ && !reserved_, "SCHED-015", "a step was planned before others are reserved behind it");
  if (step_.hidden || step_.parts.size() != running_.size()) return 1;
  const bool states = pool_.states() != nullptr;
  if (windows_of_states()) return 1;
  for (const auto& part : step_.parts) {
    if (part.ids.size() != 1 || part.rows != 1 || part.samples != 1) return 1;
    const Job& job = *find(part.key);
    steps = std::min(steps, job.tokens_max - job.ids.size());
    if (!states) continue;
    // The loop ends where a snapshot is kept, and starts with the planned step, behind which none may be kept.
    const bool in_place = job.kv->can_run_ahead() && job.kv->state_read() == job.kv->state_write();
    if (!in_place || is_snapshot(job, job.fed())) return 1;
    steps = std::min(steps, next_snapshot(job) - job.fed() + 1);
  }
  const auto takes = [&](std::size_t more) {
    std::size_t blocks = 0;
    for (const auto& job : running_) blocks += job->kv->blocks_to_append(more);
    return blocks;
  };
  while (steps > 1 && takes(steps - 1) > pool_.blocks_free()) steps /= 2;
  for (; steps > 1; steps /= 2) {
    const auto failed = std::ranges::find_if(running_, [&](const auto& job) {
      if (!job->kv->append(steps - 1).ok) return true;  // a window group's pool can be smaller than the main pool
      job->reserved = steps - 1;
      return false;
    });
    if (failed == running_.end()) break;
    // Undo the reservations made before the failure, then try fewer steps.
    for (const auto& job : running_)
      if (job->reserved > 0) {
        const auto fed = job->fed();
        job->reserved = 0;
        job->kv->trim(fed);
      }
  }
  steps = std::max<std::size_t>(steps, 1);
  reserved_ = steps > 1;
  in_flight_max_ = SIZE_MAX;
  for (const auto& job : running_)
    if (reserved_) in_flight_max_ = std::min(in_flight_max_, job->kv->run_ahead(job->fed() - 1));
  return steps;
}

/// Each sequence now computes the token that was pushed for it: one reserved position is used.
void Scheduler::advance() {
  invariant(!in_flight_ && reserved_, "SCHED-016", "reserved steps follow each other");
  for (const auto& job : running_) {
    invariant(job->pending() == 1 && job->reserved > 0, "SCHED-017", "a reserved step feeds what the last one chose");
    --job->reserved;
    job->in_step = true;
  }
  in_flight_ = true;
}

/// Reserved positions that were not used are trimmed; then blocks are published and window blocks released, which the
/// decode loop had to postpone.
void Scheduler::settle() {
  invariant(!in_flight_ && reserved_, "SCHED-016", "reserved steps follow each other");
  reserved_ = false;
  for (const auto& job : running_) {
    const auto fed = job->fed();
    job->reserved = 0;
    invariant(job->kv->trim(fed) == fed, "SCHED-018", "settling gives back the reserved positions and nothing else");
    hand_over(*job);
  }
}

/// Sequences with both cannot reserve positions.
bool Scheduler::windows_of_states() const {
  return pool_.states() != nullptr && !pool_.limits().windows.empty();
}

bool Scheduler::could_run_ahead(Time now) const {
  return !windows_of_states() && !could_admit(now) &&
         std::ranges::all_of(running_, [](const auto& job) { return job->pending() == 1; });
}

bool Scheduler::could_admit(Time now) const {
  const auto first = std::ranges::find_if(waiting_, [&](const auto& job) { return job->delayed_until <= now; });
  if (first == waiting_.end()) return false;
  return slots_in_use() + (*first)->slots() <= limits_.sequences || before(**first, *running_.back());
}

}  // namespace forge::engine
