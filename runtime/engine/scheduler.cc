#include "runtime/engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runtime/engine/scheduler_job.h"
#include "support/error.h"

namespace forge::engine {

std::string_view finish_reason_name(FinishReason reason) {
  constexpr std::string_view kNames[] = {"none", "stop", "length", "cancelled", "deadline", "error"};
  return kNames[static_cast<std::size_t>(reason)];
}

Scheduler::Scheduler(runtime::KvBlockPool& pool, const SchedulerLimits& limits) : pool_(pool), limits_(limits) {
  const std::size_t block = pool.limits().block_tokens;
  limits_.state_interval = (limits.state_interval + block - 1) / block * block;
  std::ranges::sort(limits_.turn_ends);
  invariant(limits.sequences > 0 && limits.sequences <= pool.limits().sequences_max &&
                limits.step_tokens >= limits.sequences && limits.queue > 0,
            "SCHED-001", "a step needs a token, and the pool a slot, for each sequence");
  invariant(limits.aging > Time::zero() && limits.aging <= std::chrono::hours(24), "SCHED-002",
            "aging is above zero and at most a day");
  running_.reserve(limits.sequences);
  step_.parts.reserve(limits.sequences);
  step_.copies.reserve(limits.sequences * (1 + pool.limits().windows.size()));
  outputs_.reserve(limits.sequences);
  aborted_.reserve(limits.sequences);
}

Scheduler::~Scheduler() = default;

/// Order of rank: smaller first, then the older one.
bool Scheduler::before(const Job& a, const Job& b) {
  return a.rank < b.rank || (a.rank == b.rank && a.key < b.key);
}

/// Inserts in order of rank.
void Scheduler::insert(Jobs& jobs, std::unique_ptr<Job> job) {
  const auto at = std::ranges::lower_bound(jobs, *job, before, [](const auto& j) -> const Job& { return *j; });
  jobs.insert(at, std::move(job));
}

Scheduler::Job* Scheduler::find(SequenceKey key) const {
  for (const auto* jobs : {&running_, &waiting_})
    for (const auto& job : *jobs)
      if (job->key == key) return job.get();
  return nullptr;
}

/// Refuses what could never run: even alone, a request must fit into the context and the KV pool.
std::optional<Refusal> Scheduler::check(const RequestSpec& spec) const {
  const auto& pool = pool_.limits();
  const auto refuse = [](RefusalKind kind, std::size_t asked, std::size_t limit, std::string message) {
    return Refusal{.kind = kind, .asked = asked, .limit = limit, .message = std::move(message)};
  };
  const std::size_t prompt = spec.prompt.size();
  if (prompt == 0) return refuse(RefusalKind::kInvalid, 0, 1, "the prompt is empty");
  const bool hidden = spec.wants != OutputKind::kTokens;
  if (hidden && (spec.max_tokens > 0 || spec.samples != 1))
    return refuse(RefusalKind::kInvalid, spec.max_tokens, 0,
                  "embeddings are requested together with tokens or samples");
  if (!hidden && spec.max_tokens == 0) return refuse(RefusalKind::kInvalid, 0, 1, "no tokens are requested");
  if (std::abs(spec.priority) > kPriorityMax)
    return refuse(RefusalKind::kInvalid, static_cast<std::size_t>(std::abs(spec.priority)), kPriorityMax,
                  fmt::format("priority {} is not between -{} and {}", spec.priority, kPriorityMax, kPriorityMax));
  if (spec.samples == 0 || spec.samples > kSamplesMax)
    return refuse(RefusalKind::kInvalid, spec.samples, kSamplesMax,
                  fmt::format("{} samples are requested, 1 to {} are possible", spec.samples, kSamplesMax));
  if (spec.samples > limits_.sequences)
    return refuse(
        RefusalKind::kNoRoom, spec.samples, limits_.sequences,
        fmt::format("{} samples are requested, {} sequences can run at once", spec.samples, limits_.sequences));
  if (hidden && prompt > pool.tokens_max)
    return refuse(RefusalKind::kTooLong, prompt, pool.tokens_max,
                  fmt::format("an input of {} tokens does not fit into the context of {}", prompt, pool.tokens_max));
  if (limits_.whole_prompts && prompt > limits_.step_tokens)
    return refuse(RefusalKind::kTooLong, prompt, limits_.step_tokens,
                  fmt::format("an input of {} tokens does not fit into one step of {}, as an encoder needs", prompt,
                              limits_.step_tokens));
  if (prompt > pool.tokens_max || spec.max_tokens > pool.tokens_max - prompt)
    return refuse(RefusalKind::kTooLong, prompt + spec.max_tokens, pool.tokens_max,
                  fmt::format("{} prompt tokens and {} more do not fit into the context of {}", prompt, spec.max_tokens,
                              pool.tokens_max));
  const std::size_t blocks = (prompt + spec.max_tokens + pool.block_tokens - 1) / pool.block_tokens;
  if (blocks > pool.blocks)
    return refuse(
        RefusalKind::kNoRoom, blocks, pool.blocks,
        fmt::format("{} tokens need {} KV blocks, the pool has {}", prompt + spec.max_tokens, blocks, pool.blocks));
  return std::nullopt;
}

std::expected<RequestId, Refusal> Scheduler::submit(const RequestSpec& spec, Time now) {
  if (auto refusal = check(spec)) return std::unexpected(*std::move(refusal));
  if (waiting_.size() >= limits_.queue)
    return std::unexpected(
        Refusal{.kind = RefusalKind::kQueueFull,
                .asked = waiting_.size() + 1,
                .limit = limits_.queue,
                .message = fmt::format("the queue is full: {} requests are waiting, at most {} are allowed",
                                       waiting_.size(), limits_.queue)});
  auto job = std::make_unique<Job>();
  job->key = {.request = ++last_request_, .sample = 0};
  // Rank grows with arrival time; each priority level is worth `aging` of waiting. Never changes afterwards.
  job->rank = now - spec.priority * limits_.aging;
  job->deadline = spec.deadline;
  job->tokens_max = spec.prompt.size() + spec.max_tokens;
  job->samples_to_fork = spec.samples - 1;
  job->wants = spec.wants;
  job->extra_hash = spec.extra_hash;
  job->ids.reserve(job->tokens_max);
  job->ids.assign(spec.prompt.begin(), spec.prompt.end());
  set_snapshots(*job);
  insert(waiting_, std::move(job));
  return last_request_;
}

bool Scheduler::cancel(RequestId request) {
  bool found = false;
  for (auto* jobs : {&running_, &waiting_})
    for (auto it = jobs->begin(); it != jobs->end();) {
      if ((*it)->key.request != request) {
        ++it;
        continue;
      }
      found = true;
      it = jobs->erase(it);  // destroying its handle releases the blocks
    }
  return found;
}

void Scheduler::finish(SequenceKey key) {
  // During reserved steps nothing is published until settle(), which this sequence will not see: publish its blocks
  // now. The recurrent state at its end is where a conversation goes on; trim gets it out of the loop.
  Job* job = find(key);
  if (job != nullptr && job->kv && limits_.reuse_prefixes) {
    const auto fed = job->fed();
    if (reserved_ && pool_.states() != nullptr) {
      job->kv->trim(fed);
      job->reserved = 0;
    }
    const auto ids = std::span(std::as_const(job->ids)).first(fed);
    if (!in_flight_ && !job->hidden()) {
      keep_state(*job);
      job->kv->publish_end(ids);
    } else if (reserved_) {
      job->kv->publish(ids);
    }
  }
  for (auto* jobs : {&running_, &waiting_}) std::erase_if(*jobs, [&](const auto& job) { return job->key == key; });
}

bool Scheduler::push(SequenceKey key, std::int32_t token, bool forced) {
  Job* job = find(key);
  invariant(job != nullptr && (job->pending() == 0 || (forced && !reserved_)) && job->ids.size() < job->tokens_max,
            "SCHED-003", "a token is pushed to a sequence with no pending tokens and room for one more");
  job->ids.push_back(token);  // capacity was reserved
  return job->ids.size() == job->tokens_max;
}

void Scheduler::delay(RequestId request, Time moment) {
  for (const auto& job : waiting_)
    if (job->key.request == request) job->delayed_until = moment;
}

std::span<const RequestId> Scheduler::expired(Time now) {
  expired_.clear();
  for (const auto* jobs : {&running_, &waiting_})
    for (const auto& job : *jobs)
      if (job->deadline <= now && std::ranges::find(expired_, job->key.request) == expired_.end())
        expired_.push_back(job->key.request);
  return expired_;
}

Time Scheduler::next_event() const {
  Time next = kNever;
  for (const auto* jobs : {&running_, &waiting_})
    for (const auto& job : *jobs) {
      next = std::min(next, job->deadline);
      if (job->delayed_until > Time::min()) next = std::min(next, job->delayed_until);
    }
  return next;
}

std::vector<Scheduler::State> Scheduler::states() const {
  std::vector<State> states;
  for (const auto* jobs : {&running_, &waiting_})
    for (const auto& job : *jobs)
      states.push_back({.key = job->key,
                        .rank = job->rank,
                        .delayed_until = job->delayed_until,
                        .tokens = job->ids.size(),
                        .fed = job->fed(),
                        .reused = job->reused,
                        .running = jobs == &running_});
  return states;
}

std::size_t Scheduler::reused_tokens(SequenceKey key) const {
  const Job* job = find(key);
  return job == nullptr ? 0 : job->reused;
}

void Scheduler::audit() const {
  pool_.audit();
  invariant(slots_in_use() <= limits_.sequences, "SCHED-010", "no more sequences run than there are slots");
  invariant(pool_.limits().sequences_max - pool_.sequences_free() == running_.size(), "SCHED-011",
            "the pool's open sequences are the running ones");
  for (const auto* jobs : {&running_, &waiting_}) {
    for (const auto& job : *jobs) {
      invariant(job->kv.has_value() == (jobs == &running_), "SCHED-012",
                "running sequences have a slot in the pool, waiting ones do not");
      invariant(job->fed() <= job->ids.size() && job->ids.size() <= job->tokens_max, "SCHED-013",
                "no more tokens are computed than the sequence has, and no more exist than it may have");
    }
    invariant(std::ranges::is_sorted(*jobs, before, [](const auto& j) -> const Job& { return *j; }), "SCHED-014",
              "sequences are in order of rank");
  }
}

}  // namespace forge::engine
