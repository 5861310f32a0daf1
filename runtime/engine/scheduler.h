#pragma once
// Which tokens of which sequences go into the next step. A state machine: no thread, no device, no clock of its own.
//
//   submit -> waiting -> running -> (finish | cancel)       plan -> the device runs it -> complete | abort
//                ^----------'  preempted, or its step failed: fed again from the start, less what prefixes give
//
// Order. Sequences are ranked by `arrival - priority x aging`, the older of equals first. That is a priority which
// grows by a level for each `aging` of waiting, and an order that never changes while they wait. So a sequence has only
// those before it that came until a fixed moment; the first in rank is always in the step and never preempted;
// therefore every sequence ends. Sources of the method: continuous batching, Orca (OSDI 2022); chunked prefill,
// Sarathi-Serve (arXiv 2403.02310); recompute as preemption, PagedAttention (arXiv 2309.06180).
//
// A step has up to `step_tokens` tokens: in rank, each running sequence takes what it has to feed (one token when it
// decodes, a chunk of its prompt before), but leaves one for each behind it, so a long prompt never stops others.
// Beside the first prompt others go into the step only until all together have `prompt_tokens`, but for that one token:
// else the first ones' answers would begin later, and nobody's sooner. Shared beginnings. Of running sequences that
// begin alike and have fed nothing yet, the first in rank feeds; the others are held until its blocks can be found, and
// begin with them. Steps give logits, or rows of the final norm (embeddings). Where both are wanted, kinds take turns.
//
// Admission. The first in rank that waits is let in when its tokens fit into free blocks beside what running sequences
// are still to feed, and one block more for each. Nobody passes it. It may preempt sequences of worse rank, when that
// makes it fit.
// Preemption. A running sequence that finds no block takes them from the worst in rank behind it; the worst itself
// waits for the next step with what it has.
//
// KV blocks are held by one handle a sequence (KvSequence): however a sequence ends, the handle gives them back.

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/engine/request.h"
#include "runtime/kv/kv_blocks.h"

namespace forge::engine {

struct SchedulerLimits {
  std::size_t step_tokens = 0;    ///< at least `sequences`
  std::size_t prompt_tokens = 0;  ///< up to which prompts share a step; 0: step_tokens
  /// Tokens to feed at its beginning from which on a sequence's are marked as a prompt's (StepPart::prompt).
  std::size_t long_prompt = SIZE_MAX;
  std::size_t sequences = 0;  ///< that run at once; at most the pool's sequences_max
  std::size_t queue = 0;      ///< sequences that may wait before requests are refused
  Time aging = std::chrono::seconds(10);
  bool reuse_prefixes = true;
};

/// A sequence's share of a step. Spans hold until the scheduler is called again.
struct StepPart {
  SequenceKey key;
  std::span<const std::int32_t> ids;  ///< to feed
  std::size_t position = 0;           ///< of the first
  std::size_t prompt = 0;             ///< how many of them, from the first on, are those of a long prompt
  const runtime::KvSequence* kv = nullptr;
  std::size_t rows = 0;     ///< of its last tokens, that are wanted; of logits one, when nothing is left to feed
  std::size_t samples = 1;  ///< that are drawn from a row of logits
};

struct StepPlan {
  std::vector<StepPart> parts;  ///< none: nothing can run now
  std::vector<runtime::BlockCopy> copies;
  std::size_t tokens = 0;
  bool hidden = false;  ///< rows are those of the final norm, not logits
};

/// What a step gave a sequence: the logits that its next token comes from, or rows of the final norm.
struct RowsGiven {
  SequenceKey key;
  std::size_t row = 0;       ///< of what the step gave, the first
  std::size_t count = 1;     ///< of logits one
  std::size_t position = 0;  ///< of the first row's token; rows begin anew at 0 when the sequence did
  bool last = true;          ///< no other rows will come
};

struct SchedulerCounts {
  std::uint64_t prefix_queries = 0, prefix_hits = 0;  ///< in tokens, at admission
  std::uint64_t preemptions = 0, admissions = 0;
};

class Scheduler {
 public:
  /// Errors: Error(kInternal) for limits that contradict each other.
  Scheduler(runtime::KvBlockPool& pool, const SchedulerLimits& limits);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler();

  /// Puts a request behind those that wait, or says why not.
  std::expected<RequestId, Refusal> submit(const RequestSpec& spec, Time now);
  /// Whether submit would refuse: without looking at the queue.
  [[nodiscard]] std::optional<Refusal> check(const RequestSpec& spec) const;

  /// Ends all samples of a request, at any moment: also while its step is in flight. False: it has ended before.
  bool cancel(RequestId request);
  /// Ends one sample.
  void finish(SequenceKey key);

  /// The next step. Not while one is in flight. Allocates nothing once it has seen steps as large.
  const StepPlan& plan(Time now);
  /// The planned step has been run: who gets rows. The samples of a request part here. Each key that got logits is then
  /// given its token (push), or ended; one that got its last hidden rows is ended.
  std::span<const RowsGiven> complete();
  /// The planned step failed. What the device's memory holds is not trusted any more: all that runs begins anew, and
  /// nothing is left of prefixes. Keys of the step's sequences, until the next call.
  std::span<const SequenceKey> abort();
  /// A sequence's next token. True: that was the last it may have.
  bool push(SequenceKey key, std::int32_t token);

  // Steps one behind the other, without a plan between. Where each sequence of the planned step takes one token and
  // every token can be fed where it is chosen, blocks are taken for several steps at once:
  //   plan, reserve, complete and push, advance, complete and push, ..., settle, plan
  /// Behind plan(): how many steps, the planned one among them, may follow each other: at most `steps`; 1 when nothing
  /// was reserved, and then nothing of this applies. Until settle() nobody is let in.
  std::size_t reserve(std::size_t steps);
  /// The next reserved step; complete() ended the one before. Who ended meanwhile is no longer in it.
  void advance();
  /// Instead of advance: gives back what was reserved and has not been fed.
  void settle();
  [[nodiscard]] bool reserved() const { return reserved_; }
  /// Would the first in rank that waits, for all that is known without looking at blocks, be let in?
  [[nodiscard]] bool has_place(Time now) const;

  /// A request that waits is not let in before `moment`; others pass it until then.
  void delay(RequestId request, Time moment);

  /// Requests whose deadline has come, until the next call.
  std::span<const RequestId> expired(Time now);
  /// When plan() may have something to do although it had nothing: the end of a delay, or a deadline. May be past.
  [[nodiscard]] Time next_event() const;

  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty(); }
  [[nodiscard]] bool in_flight() const { return in_flight_; }
  [[nodiscard]] const SchedulerCounts& counts() const { return counts_; }
  [[nodiscard]] const SchedulerLimits& limits() const { return limits_; }

  struct State {
    SequenceKey key;
    Time rank{}, delayed_until{};
    std::size_t tokens = 0, fed = 0, reused = 0;
    bool running = false;
  };
  /// What is known of every sequence; for tests and debugging.
  [[nodiscard]] std::vector<State> states() const;
  /// Recounts everything, the pool too. Throws Error(kInternal) naming the broken invariant.
  void audit() const;
  /// Prompt tokens that a sequence found in the pool when it was let in first; 0 when it has not been.
  [[nodiscard]] std::size_t reused_tokens(SequenceKey key) const;

 private:
  struct Job;
  using Jobs = std::vector<std::unique_ptr<Job>>;

  static bool before(const Job& a, const Job& b);
  static void insert(Jobs& jobs, std::unique_ptr<Job> job);
  [[nodiscard]] Job* find(SequenceKey key) const;
  [[nodiscard]] std::size_t slots_in_use() const;
  [[nodiscard]] bool fits(const Job& job, std::size_t stay, std::size_t blocks_back) const;
  bool make_room(const Job& job);
  void admit(std::unique_ptr<Job> job);
  void admit_all(Time now);
  void preempt_worst();
  void hold_followers();
  struct Budget;
  void plan_part(std::size_t index, Budget& budget);
  void plan_parts(bool hidden);
  void part_samples(Job& first);

  runtime::KvBlockPool& pool_;
  SchedulerLimits limits_;
  Jobs running_, waiting_;  ///< in rank
  RequestId last_request_ = 0;
  bool in_flight_ = false, reserved_ = false;
  StepPlan step_;
  std::vector<RowsGiven> given_;
  std::vector<SequenceKey> aborted_;
  std::vector<RequestId> expired_;
  SchedulerCounts counts_;
};

}  // namespace forge::engine
