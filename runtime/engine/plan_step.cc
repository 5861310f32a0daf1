// The scheduler's planning: admission, preemption, the contents of a step, and processing its completion.

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/engine/scheduler.h"
#include "runtime/engine/scheduler_job.h"
#include "runtime/step_batch.h"
#include "support/error.h"

namespace forge::engine {

/// Slots that running sequences occupy: one each, plus one per sample that will be forked.
std::size_t Scheduler::slots_in_use() const {
  return std::accumulate(running_.begin(), running_.end(), std::size_t{0},
                         [](std::size_t sum, const auto& job) { return sum + job->slots(); });
}

/// True if `job` can be admitted when only the first `remaining` running sequences are kept and `blocks_back` blocks
/// have been given back by the others. Requires
///
///   blocks of its tokens - blocks found in the prefix cache + found ones that are idle (they stop counting as free)
///     + one block per slot for growth + what the remaining sequences still need for their pending tokens
///   <= free blocks.
bool Scheduler::fits(const Job& job, std::size_t remaining, std::size_t blocks_back) const {
  const auto& pool = pool_.limits();
  std::size_t slots = job.slots(), pending_blocks = 0;
  for (const auto& other : std::span(running_).first(remaining)) {
    slots += other->slots();
    pending_blocks += other->kv->blocks_to_append(other->pending()) + other->slots();
  }
  if (slots > limits_.sequences) return false;
  const std::size_t all = (job.ids.size() + pool.block_tokens - 1) / pool.block_tokens;
  const auto match = limits_.reuse_prefixes ? pool_.match(job.reusable(), job.extra_hash) : runtime::PrefixMatch{};
  const std::size_t headroom = remaining == 0 ? 0 : job.slots();
  return all - match.blocks + match.idle + headroom + pending_blocks <= pool_.blocks_free() + blocks_back;
}

/// Preempts sequences of lower rank if, and only if, that makes `job` fit. Blocks that other sequences also use are not
/// counted as gained, so no sequence is preempted without effect.
bool Scheduler::make_room(const Job& job) {
  std::size_t remaining = running_.size(), back = 0;
  while (!fits(job, remaining, back)) {
    if (remaining == 0 || before(*running_[remaining - 1], job)) return false;
    --remaining;
    for (const auto block : running_[remaining]->kv->blocks()) back += pool_.references(block) == 1 ? 1 : 0;
  }
  while (running_.size() > remaining) preempt_worst();
  return true;
}

/// Moves the lowest-ranked running sequence back to the queue. Its blocks are released; published ones stay in the
/// prefix cache, so that restarting it is cheap if they are not evicted.
void Scheduler::preempt_worst() {
  auto job = std::move(running_.back());
  running_.pop_back();
  // Keeping the state costs a slot that holds an older snapshot; computing a few tokens again costs less.
  if (job->fed() >= job->kv->state_kept() + pool_.limits().block_tokens) keep_state(*job);
  job->kv.reset();
  ++counts_.preemptions;
  insert(waiting_, std::move(job));
}

/// Opens a sequence with the prefix that the cache has, and makes it run.
void Scheduler::admit(std::unique_ptr<Job> job) {
  const auto known = limits_.reuse_prefixes ? job->reusable() : std::span<const std::int32_t>{};
  if (keeps_states()) job->branch = snapshot_at(pool_.match(known, job->extra_hash).indexed);
  job->kv = pool_.open(known, job->extra_hash);
  invariant(job->kv.has_value(), "SCHED-004", "the pool has a slot for each running sequence");
  job->found = job->fed();
  counts_.prefix_queries += job->ids.size();
  counts_.prefix_hits += job->fed();
  ++counts_.admissions;
  job->delayed_until = Time::min();
  if (!std::exchange(job->admitted, true)) job->reused = job->fed();
  insert(running_, std::move(job));
}

/// Admits in order of rank until one does not fit; delayed sequences (after a failure) are skipped.
void Scheduler::admit_all(Time now) {
  for (std::size_t i = 0; i < waiting_.size();) {
    if (waiting_[i]->delayed_until > now) {
      ++i;
      continue;
    }
    if (!make_room(*waiting_[i])) return;
    // Sequences preempted for it are behind it in the queue, so index i still names this one.
    auto job = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    admit(std::move(job));
  }
}

/// Defers prompts that share a prefix with a higher-ranked prompt which is still being computed: computed side by side,
/// both would do the same work. When the shared blocks are in the prefix cache, the deferred sequence restarts with
/// them.
void Scheduler::defer_shared_prefixes() {
  for (auto& job : running_) {
    job->deferred = false;
    job->wanted = 0;
  }
  if (!limits_.reuse_prefixes || (pool_.states() != nullptr && !keeps_states())) return;
  const std::size_t size = pool_.limits().block_tokens;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Job& job = *running_[i];
    const auto wanted = job.reusable();
    if (!job.fresh() || job.fed() + size > wanted.size()) continue;
    const auto match = pool_.match(wanted, job.extra_hash);
    if ((keeps_states() ? match.tokens : match.blocks * size) > job.fed()) {  // published since it was admitted
      const auto before = job.fed();
      job.kv.reset();
      job.kv = pool_.open(wanted, job.extra_hash);
      invariant(job.kv.has_value(), "SCHED-004", "the pool has a slot for each running sequence");
      counts_.prefix_hits += job.fed() - std::min(job.fed(), before);
      if (job.reused == before) job.reused = job.fed();
      job.found = job.fed();
    }
    // Deferred if an earlier sequence will compute shared blocks that neither has computed yet.
    job.deferred = std::ranges::any_of(std::span(running_).first(i), [&](const auto& other) {
      if (other->extra_hash != job.extra_hash) return false;
      const auto alike = static_cast<std::size_t>(std::ranges::mismatch(wanted, other->ids).in1 - wanted.begin());
      const auto shared = alike / size * size;
      if (shared <= std::max(job.fed(), other->fed())) return false;
      // Recurrent state is shared only where it was kept.
      other->wanted = std::min(other->wanted == 0 ? shared : other->wanted, shared);
      return true;
    });
  }
}

/// Remaining token budget while a step is planned.
struct Scheduler::Budget {
  std::size_t tokens = 0;
  std::size_t prompts = 0;  ///< what is left of prompt_tokens
  std::size_t behind = 0;   ///< sequences not planned yet; one token is kept for each
  /// False once a prompt has been planned.
  bool first_prompt = true;
};

/// The tokens that a sequence may compute in this step, before KV blocks are counted: a whole prompt or none of it,
/// else what the budget leaves.
std::size_t Scheduler::tokens_of(const Job& job, Budget& budget) const {
  if (limits_.whole_prompts) return job.pending() <= budget.tokens ? job.pending() : 0;
  std::size_t count = std::min(job.pending(), budget.tokens - std::min(budget.tokens, budget.behind));
  if (job.pending() > 1 && !std::exchange(budget.first_prompt, false))
    count = std::min(count, std::max<std::size_t>(budget.prompts, 1));
  return std::min(count, next_snapshot(job) - job.fed());
}

/// Plans the share of running sequence `index`: number of tokens, KV blocks (preempting lower ranks if needed), wanted
/// rows.
void Scheduler::plan_part(std::size_t index, Budget& budget) {
  Job& job = *running_[index];
  if (job.deferred || job.hidden() != step_.hidden) return;
  const bool prompt = job.pending() > 1;
  --budget.behind;
  if (!job.kv->has_state_to_append()) return;  // other sequences of the step read its slots: in the next step
  std::size_t count = tokens_of(job, budget);
  while (job.kv->blocks_to_append(count) > pool_.blocks_free() && running_.size() - 1 > index) preempt_worst();
  while (count > 0 && job.kv->blocks_to_append(count) > pool_.blocks_free()) {
    const std::size_t size = pool_.limits().block_tokens, over = (job.fed() + count) % size;
    count -= std::min(count, over == 0 ? size : over);  // cut at a block boundary
  }
  if (count == 0 || (limits_.whole_prompts && count < job.pending())) return;
  // Decided once, when the sequence starts: the tokens of a long prompt use other kernels.
  if (!job.prompt) job.prompt = job.pending() >= limits_.long_prompt ? job.ids.size() : 0;
  const std::size_t position = job.fed();
  const auto grown = job.kv->append(count);
  invariant(grown.ok, "SCHED-005", "blocks are counted before they are taken");
  if (grown.copy) step_.copies.push_back(*grown.copy);
  step_.copies.insert(step_.copies.end(), grown.window_copies.begin(), grown.window_copies.end());
  // Rows wanted: all for a mean embedding, that of the first token for a CLS embedding, one if this completes the
  // pending tokens, otherwise none.
  const bool mean = job.wants == OutputKind::kMeanRow, first = job.wants == OutputKind::kFirstRow;
  const bool gives_row = first ? position == 0 : job.pending() == 0;
  job.in_step = true;
  step_.parts.push_back({.key = job.key,
                         .ids = std::span(job.ids).subspan(position, count),
                         .position = position,
                         .prompt = std::min(count, *job.prompt - std::min(*job.prompt, position)),
                         .kv = &*job.kv,
                         .first_row = mean || first ? 0 : count - 1,
                         .rows = mean ? count : std::size_t{gives_row},
                         .samples = job.slots()});
  step_.tokens += count;
  budget.tokens -= count;
  if (prompt) budget.prompts -= std::min(budget.prompts, count);
}

/// Fills the step with sequences that want hidden rows (`hidden`) or logits.
void Scheduler::plan_parts(bool hidden) {
  step_.hidden = hidden;
  const auto takes_part = [&](const auto& job) { return !job->deferred && job->hidden() == hidden; };
  Budget budget{.tokens = limits_.step_tokens,
                .prompts = limits_.prompt_tokens > 0 ? limits_.prompt_tokens : limits_.step_tokens,
                .behind = static_cast<std::size_t>(std::ranges::count_if(running_, takes_part))};
  for (std::size_t i = 0; i < running_.size(); ++i) plan_part(i, budget);
}

const StepPlan& Scheduler::plan(Time now) {
  invariant(!in_flight_ && !reserved_, "SCHED-006", "one step is in flight at a time");
  step_.parts.clear();
  step_.copies.clear();
  step_.tokens = 0;
  admit_all(now);
  defer_shared_prefixes();
  // A step returns logits or hidden rows, not both. If both are wanted, they alternate.
  const auto hidden = [](const auto& job) { return job->hidden(); };
  const bool rows = std::ranges::any_of(running_, hidden), logits = !std::ranges::all_of(running_, hidden);
  const bool first = rows && (!logits || !step_.hidden);
  plan_parts(first);
  // The planned kind may lack KV blocks while the other kind can run.
  if (step_.parts.empty() && rows && logits) plan_parts(!first);
  in_flight_ = !step_.parts.empty();
  return step_;
}

/// Forks the further samples of a request after its prompt has been computed. They share all blocks of the prompt; the
/// last one is copied when a sample first writes into it.
void Scheduler::fork_samples(Job& first) {
  for (std::uint32_t sample = 1; sample <= first.samples_to_fork; ++sample) {
    auto job = std::make_unique<Job>();
    job->key = {.request = first.key.request, .sample = sample};
    job->rank = first.rank;
    job->deadline = first.deadline;
    job->tokens_max = first.tokens_max;
    job->prompt = first.prompt;
    job->prompt_end = first.prompt_end;
    job->extra_hash = first.extra_hash;
    job->ids.reserve(first.tokens_max);
    job->ids = first.ids;
    job->reused = first.reused;
    job->admitted = true;
    job->kv = first.kv->fork(first.fed());
    invariant(job->kv.has_value(), "SCHED-004", "the pool has a slot for each running sequence");
    insert(running_, std::move(job));
  }
  first.samples_to_fork = 0;
}

/// Publishes finished blocks to the prefix cache and lists which sequences get rows. In reserved steps (decode loop)
/// publishing waits for settle(), because the device is already writing later positions.
std::span<const StepOutput> Scheduler::complete() {
  invariant(in_flight_, "SCHED-007", "a step was planned before it is completed");
  in_flight_ = false;
  outputs_.clear();
  std::size_t next_row = 0;
  for (const auto& part : step_.parts) {
    const std::size_t row = next_row;
    next_row += part.rows;
    Job* job = find(part.key);
    if (job == nullptr || !job->kv) continue;  // ended while the step was in flight
    job->in_step = false;
    if (!reserved_) hand_over(*job);
    if (part.rows == 0) continue;
    const auto samples = static_cast<std::uint32_t>(job->slots());
    fork_samples(*job);
    for (std::uint32_t sample = 0; sample < samples; ++sample)
      outputs_.push_back({.key = {.request = part.key.request, .sample = part.key.sample + sample},
                          .row = row,
                          .count = part.rows,
                          .position = part.position + part.first_row,
                          .last = job->pending() == 0 || job->wants == OutputKind::kFirstRow});
  }
  return outputs_;
}

/// All running sequences restart from the queue with their tokens; KV contents are discarded, including the prefix
/// cache.
std::span<const SequenceKey> Scheduler::abort() {
  invariant(in_flight_, "SCHED-007", "a step was planned before it fails");
  in_flight_ = reserved_ = false;
  aborted_.clear();
  for (auto& job : running_) {
    if (std::exchange(job->in_step, false)) aborted_.push_back(job->key);
    job->kv.reset();
    job->reserved = 0;
    insert(waiting_, std::move(job));
  }
  running_.clear();
  pool_.evict_idle();
  return aborted_;
}

}  // namespace forge::engine
