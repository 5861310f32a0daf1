#pragma once
// The scheduler decides which tokens of which sequences are computed in the next step (continuous batching, Orca, OSDI
// 2022; chunked prefill, Sarathi-Serve, arXiv 2403.02310; preemption by recomputation, PagedAttention, arXiv
// 2309.06180). It is a state machine without thread, device or clock; EngineCore drives it.
//
//   sequence:  submit -> waiting -> running -> finish or cancel
//                          ^           |
//                          +-----------+  preempted, or its step failed: recomputed, minus what the prefix cache has
//   step:      plan -> the executor runs it -> complete or abort
//
// Rank. Sequences are ordered by `arrival - priority * aging`, older first among equals. This is a priority that rises
// by one level per `aging` of waiting, but as an order it never changes. Only sequences that arrive before a fixed
// moment can rank before a given one, and the first in rank is in every step and is never preempted, so every sequence
// finishes.
//
// Token budget. A step has up to `step_tokens` tokens. In order of rank each running sequence takes what it has to
// compute (one token when decoding, a chunk of its prompt when prefilling), but leaves one token for each sequence
// behind it, so a long prompt never stops decoding. Example with step_tokens 8:
//
//   rank  sequence  to compute   gets
//   1     A         1 (decode)   1
//   2     B         100          8 - 1 - 2 = 5
//   3     C         1 (decode)   1
//   4     D         50           1
//
// After the first prompt, further prompts are added only until all prompts of the step together have `prompt_tokens`
// tokens (besides the one token each): more would delay the first tokens of the earlier prompts without making the
// later ones faster.
//
// Shared prefixes. Of running sequences with a common prefix that is not computed yet, the first in rank computes it.
// The others are deferred until its blocks are in the prefix cache, and start with them.
//
// Output. A step returns logits or rows of the final norm (embeddings). If both are wanted, the kinds alternate.
//
// Whole prompts. An encoder's tokens see each other in both directions and nothing is cached, so a prompt has all its
// tokens in one step. In order of rank each prompt that still fits into the step takes part; the first always fits,
// because longer ones are refused.
//
// Admission. The first waiting sequence in rank is admitted when its tokens fit into the free blocks in addition to
// what running sequences still need, plus one block each. None overtakes it. It may preempt sequences of lower rank if
// that makes it fit.
//
// Preemption. A running sequence that finds no free block takes blocks from the lowest-ranked sequence behind it. The
// lowest-ranked itself computes what its blocks allow, or waits for the next step.
//
// Recurrent state. A prefix is reused from a snapshot of the state (KvSequence::keep_state), so chunks of a prompt end
// where one is worth keeping: behind the last token that ends a turn, at the end of the prompt, where a running
// sequence or the prefix cache continues differently, and each `state_interval` tokens. A sequence that finishes keeps
// its state, and so does a preempted one if that saves at least a block of tokens.
//
// Ownership. Each sequence's KV blocks are held by one handle (KvSequence), which releases them however the sequence
// ends.

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/engine/request.h"
#include "runtime/kv/kv_blocks.h"

namespace forge::engine {

/// Limits and options of a scheduler.
struct SchedulerLimits {
  std::size_t step_tokens = 0;  ///< token budget of a step; at least `sequences`
  /// Prompts after the first join a step only while all together have at most this many tokens; 0: step_tokens.
  std::size_t prompt_tokens = 0;
  /// Sequences that start with at least this many tokens to compute have them marked as long-prompt tokens
  /// (StepPart::prompt).
  std::size_t long_prompt = SIZE_MAX;
  std::size_t sequences = 0;  ///< running at once; at most the pool's sequences_max
  std::size_t queue = 0;      ///< sequences that may wait; more are refused
  /// Waiting time worth one priority level.
  Time aging = std::chrono::seconds(10);
  bool reuse_prefixes = true;
  /// Recurrent state: tokens between snapshots, rounded up to whole blocks; 0: none at regular distances.
  std::size_t state_interval = 0;
  std::vector<std::int32_t> turn_ends = {};  ///< token ids that end a turn, sorted
  /// Encoders: all tokens of a prompt are in one step, beside other whole prompts; longer ones are refused.
  bool whole_prompts = false;
};

/// One sequence's share of a step. Spans are valid until the scheduler is called again.
struct StepPart {
  SequenceKey key;
  std::span<const std::int32_t> ids;  ///< token ids to compute
  std::size_t position = 0;           ///< position of the first
  std::size_t prompt = 0;             ///< how many leading tokens belong to a long prompt
  const runtime::KvSequence* kv = nullptr;
  std::size_t first_row = 0;  ///< index in `ids` of the first token that returns a row
  std::size_t rows = 0;  ///< how many tokens from there return a row; logits: 1 if nothing remains to compute, else 0
  std::size_t samples = 1;  ///< samples drawn from one row of logits
};

/// A planned step.
struct StepPlan {
  std::vector<StepPart> parts;  ///< empty: nothing can run now
  /// Block copies (copy on write) to make before the step.
  std::vector<runtime::BlockCopy> copies;
  std::size_t tokens = 0;
  bool hidden = false;  ///< rows are hidden rows (final norm), not logits
};

/// Rows that a step returned for a sequence: one row of logits, from which its next token is sampled, or hidden rows.
struct StepOutput {
  SequenceKey key;
  std::size_t row = 0;       ///< index of the first in the step's result
  std::size_t count = 1;     ///< number of rows; 1 for logits
  std::size_t position = 0;  ///< token position of the first row; starts again at 0 if the sequence was restarted
  bool last = true;          ///< no more hidden rows will follow
};

/// Statistics; only grow.
struct SchedulerCounts {
  std::uint64_t prefix_queries = 0, prefix_hits = 0;  ///< prompt tokens looked up in and found in the prefix cache
  std::uint64_t preemptions = 0, admissions = 0;
};

/// See the head of this file.
class Scheduler {
 public:
  /// Errors: Error(kInternal) for limits that contradict each other.
  Scheduler(runtime::KvBlockPool& pool, const SchedulerLimits& limits);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler();

  /// Queues a request, or returns why it is refused.
  std::expected<RequestId, Refusal> submit(const RequestSpec& spec, Time now);
  /// The refusal that submit would return, except for a full queue.
  [[nodiscard]] std::optional<Refusal> check(const RequestSpec& spec) const;

  /// Ends all samples of a request at any time, also while its step is in flight. Returns false if it has ended
  /// already.
  bool cancel(RequestId request);
  /// Ends one sample.
  void finish(SequenceKey key);

  /// Plans the next step. No step may be in flight. Does not allocate once it has planned steps as large.
  const StepPlan& plan(Time now);
  /// Call when the planned step has run. Returns which sequences get rows; the samples of a request are forked here.
  /// Each key with logits must then be given a token (push) or finished; a key with its last hidden rows must be
  /// finished.
  std::span<const StepOutput> complete();
  /// Call when the planned step has failed. KV contents are no longer trusted: all running sequences restart and the
  /// prefix cache is emptied. Returns the keys of the step's sequences, valid until the next call.
  std::span<const SequenceKey> abort();
  /// Appends a sampled token. Returns true if the sequence has reached its length limit. `forced`: the token follows
  /// others that are not computed yet, and the next step computes all of them like a prompt; not in reserved steps.
  bool push(SequenceKey key, std::int32_t token, bool forced = false);

  // Reserved steps: several steps in a row without planning, for a decode loop on the device. Possible if every running
  // sequence decodes and its tokens can be sampled on the device. KV blocks for all steps are taken at once:
  //
  //   plan, reserve, complete + push, advance, complete + push, ..., settle, plan
  /// Call after plan(). Returns how many steps, including the planned one, may follow each other: at most `steps`; 1
  /// means that nothing was reserved and complete() works as usual. No sequence is admitted until settle().
  std::size_t reserve(std::size_t steps);
  /// Reserved steps: how many the device may have in flight at once (KvSequence::run_ahead).
  [[nodiscard]] std::size_t in_flight_max() const { return in_flight_max_; }
  /// Begins the next reserved step after complete(). Sequences that have ended are no longer part of it.
  void advance();
  /// Ends the reserved steps (instead of advance) and gives back KV blocks that were not used.
  void settle();
  [[nodiscard]] bool reserved() const { return reserved_; }
  /// True if the first waiting sequence could be admitted, judging by slots and rank only (blocks are not checked).
  [[nodiscard]] bool could_admit(Time now) const;
  /// True if the next step could be the first of reserved ones: no sequence is likely to be admitted, and all running
  /// ones have one token to compute.
  [[nodiscard]] bool could_run_ahead(Time now) const;

  /// Keeps a waiting request from being admitted before `moment`. Others may overtake it until then.
  void delay(RequestId request, Time moment);

  /// Requests whose deadline has passed; valid until the next call.
  std::span<const RequestId> expired(Time now);
  /// Earliest time at which plan() may have work again: the end of a delay, or a deadline. May be in the past.
  [[nodiscard]] Time next_event() const;

  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty(); }
  [[nodiscard]] bool in_flight() const { return in_flight_; }
  [[nodiscard]] const SchedulerCounts& counts() const { return counts_; }
  [[nodiscard]] const SchedulerLimits& limits() const { return limits_; }

  /// Snapshot of one sequence.
  struct State {
    SequenceKey key;
    Time rank{}, delayed_until{};
    std::size_t tokens = 0, fed = 0, reused = 0;
    bool running = false;
  };
  /// State of every sequence; for tests and debugging.
  [[nodiscard]] std::vector<State> states() const;
  /// Checks all invariants, including the pool's. Throws Error(kInternal) naming the broken one.
  void audit() const;
  /// Prompt tokens that the prefix cache had when the sequence was first admitted; 0 before.
  [[nodiscard]] std::size_t reused_tokens(SequenceKey key) const;

 private:
  [[nodiscard]] bool windows_of_states() const;
  struct Job;
  using Jobs = std::vector<std::unique_ptr<Job>>;

  static bool before(const Job& a, const Job& b);
  static void insert(Jobs& jobs, std::unique_ptr<Job> job);
  [[nodiscard]] Job* find(SequenceKey key) const;
  [[nodiscard]] std::size_t slots_in_use() const;
  [[nodiscard]] bool fits(const Job& job, std::size_t remaining, std::size_t blocks_back) const;
  bool make_room(const Job& job);
  void admit(std::unique_ptr<Job> job);
  void admit_all(Time now);
  void preempt_worst();
  void defer_shared_prefixes();
  [[nodiscard]] bool keeps_states() const;
  [[nodiscard]] std::size_t snapshot_at(std::size_t tokens) const;
  [[nodiscard]] std::size_t next_snapshot(const Job& job) const;
  [[nodiscard]] bool is_snapshot(const Job& job, std::size_t fed) const;
  void set_snapshots(Job& job) const;
  void hand_over(Job& job);
  void keep_state(Job& job);
  struct Budget;
  std::size_t tokens_of(const Job& job, Budget& budget) const;
  void plan_part(std::size_t index, Budget& budget);
  void plan_parts(bool hidden);
  void fork_samples(Job& first);

  runtime::KvBlockPool& pool_;
  SchedulerLimits limits_;
  Jobs running_, waiting_;  ///< in order of rank
  RequestId last_request_ = 0;
  bool in_flight_ = false, reserved_ = false;
  std::size_t in_flight_max_ = SIZE_MAX;
  StepPlan step_;
  std::vector<StepOutput> outputs_;
  std::vector<SequenceKey> aborted_;
  std::vector<RequestId> expired_;
  SchedulerCounts counts_;
};

}  // namespace forge::engine
