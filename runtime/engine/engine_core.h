#pragma once
// EngineCore is the engine without threads: requests, samplers, streams, scheduler and executor. Each call of step()
// runs one step. Engine (engine.h) drives it from a thread with the real clock; tests drive it with a simulated clock.
//
// One step:
//
//   Scheduler::plan -> BatchBuilder::build -> Executor::forward -> Scheduler::complete -> sample -> Stream::put
//                                             MaskThreads (meanwhile)
//
// Results are batch-invariant: executors compute logits in a fixed order of operations regardless of batch, chunking
// and prefix reuse (on the CPU bit for bit; on GPUs as far as their kernels do), and random draws are numbered per
// sample. Sample s of a request draws like a request of its own with seed + s.
//
// Sampling on the device: if the executor can sample, only token ids are copied to the host. Rows whose logits the host
// needs (log probabilities, penalties, logit bias, several samples of one prompt) are sampled on the host.
//
// Running ahead: while the batch does not change, the device runs several steps in a row, each feeding the token that
// the last one sampled, and the host streams tokens meanwhile. An arrival that can be admitted, or the end of a
// sequence, drains the steps in flight; then a new step is planned.
//
// Constraints (Request::constraint) belong to samples, not to KV blocks, so preemption and retries do not touch them.
// What a constraint forces is appended without sampling, and computed like a prompt together with the token before it.
// A forced token counts as a draw, so that random numbers do not depend on whether a device that ran ahead sampled it.
// While a constrained sample runs, a device that runs ahead waits with the sampling of each step until the masks are
// there; they are computed while the step's forward pass runs (DecodeLoop), on CPUs if the executor leaves one idle: a
// mask that takes a CPU from one thread of a step holds up all the others. Masks are no part of a step's time: while
// they are waited for, requests can be cancelled and expire, and one whose mask takes too long ends alone.

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/engine/batch.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/stream.h"
#include "runtime/executor.h"
#include "runtime/mask_thread.h"
#include "runtime/sampler.h"
#include "runtime/token_constraint.h"

namespace forge::engine {

/// A request as clients submit it.
struct Request {
  std::vector<std::int32_t> prompt;
  /// Hash of everything besides token ids that keys and values depend on (an adapter, images). Requests share prompt
  /// prefixes only if it is equal.
  std::uint64_t extra_hash = 0;
  runtime::SamplerParams sampling;
  std::size_t max_tokens = 0;  ///< per sample; 0: as many as the context has room for
  std::size_t samples = 1;
  int priority = 0;
  /// Tokens, or one hidden row (embedding; then max_tokens 0 and one sample, and token options are ignored). Encoders
  /// have hidden rows only.
  OutputKind wants = OutputKind::kTokens;
  Time timeout = kNever;                  ///< from submission until the request is ended with kDeadline
  bool logprobs = false;                  ///< report the log probability of each token
  std::size_t top_logprobs = 0;           ///< with logprobs: how many of the most likely tokens to report
  std::vector<std::int32_t> stop_tokens;  ///< end a sample; not reported as tokens
  /// Returns true if the sample ends with this token (e.g. a stop string is complete). Called on the engine's thread,
  /// in order.
  std::function<bool(std::uint32_t sample, std::int32_t token)> stop;
  /// Makes the constraint of each sample, in prepare(); empty: every token may come. A sample ends with kStop where its
  /// constraint allows no more than the end. Tokens that it forces are not sampled, but for one that a logit bias is
  /// against, and log probabilities change no token. Errors of a constraint end its request.
  std::function<std::unique_ptr<runtime::TokenConstraint>()> constraint;
  std::function<void()> on_event;  ///< see Stream's constructor
};

/// Upper limit of Request::top_logprobs.
inline constexpr std::size_t kTopLogprobsMax = 64;

/// Options of the engine. Zero means the plan's value where noted.
struct EngineOptions {
  std::size_t step_tokens = 0;    ///< token budget of a step; 0: the plan's largest step
  std::size_t prompt_tokens = 0;  ///< limit for prompts sharing a step (SchedulerLimits); 0: the program's value
  std::size_t sequences = 0;      ///< sequences running at once; 0: the plan's batch
  std::size_t queue = 256;        ///< requests that may wait
  // Waiting time that counts as much as one priority level.
  Time aging = std::chrono::seconds(10);
  bool reuse_prefixes = true;
  // Recurrent state (SchedulerLimits): snapshots are kept for prefix reuse, at regular distances and behind these
  // tokens.
  bool state_snapshots = true;
  std::size_t state_interval = 0;
  std::vector<std::int32_t> turn_ends = {};
  std::size_t retries = 3;  ///< repeated attempts of a request whose steps fail recoverably without producing a token
  Time backoff = std::chrono::milliseconds(50);  ///< pause before the first retry; doubles each time
  Time backoff_max = std::chrono::seconds(5);
  std::size_t failures_unhealthy = 3;         ///< failed steps in a row that make the engine unhealthy
  std::size_t steps_healthy = 32;             ///< successful steps until a degraded engine is healthy again
  Time probation = std::chrono::seconds(10);  ///< time until an unhealthy engine accepts requests again
  Time watchdog = std::chrono::seconds(60);   ///< time limit of one step; zero: no watchdog
  Time mask_time = std::chrono::seconds(5);   ///< a request whose mask takes longer ends with an error
  std::size_t steps_ahead = 64;               ///< steps that the device may run without planning; 1: no running ahead
};

/// State for health checks and load balancers.
enum class Health : std::uint8_t {
  kHealthy,
  kDegraded,   ///< a step failed recently
  kUnhealthy,  ///< steps fail, or one does not return; requests are refused
};

/// Counters, which only grow, and current values. Times are sums over all requests (divide by their number for means).
struct EngineMetrics {
  std::uint64_t submitted = 0, refused = 0;
  std::array<std::uint64_t, 6> finished{};  ///< samples, by FinishReason
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, fed_tokens = 0;
  std::uint64_t steps = 0, steps_ahead = 0, failed_steps = 0, stuck_steps = 0, retries = 0;
  std::uint64_t preemptions = 0, prefix_queries = 0, prefix_hits = 0, evictions = 0;
  Time queued{}, to_first_token{}, end_to_end{}, in_steps{};
  std::size_t running = 0, waiting = 0;  ///< now
  std::size_t kv_blocks = 0, kv_blocks_free = 0, kv_blocks_idle = 0;
  // Recurrent state: slots, those that a step can take, and snapshots among them, now; then totals: snapshots kept,
  // those that a sequence started from, and those evicted.
  std::size_t state_slots = 0, state_slots_free = 0, state_snapshots = 0;
  std::uint64_t states_kept = 0, state_hits = 0, state_evictions = 0;
  std::uint64_t device_allocations = 0;  ///< total so far
};

/// Notified around each step (implemented by Engine for the watchdog), and around what the host does with its tokens.
/// end() returns true if that was given up.
class StepWatch {
 public:
  StepWatch() = default;
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;
  virtual ~StepWatch() = default;
  enum class Part : std::uint8_t { kDevice, kTokens };
  virtual void begin(Part part) = 0;
  virtual bool end() = 0;
};

/// See the head of this file. Used by one thread, except prepare() and end_streams().
class EngineCore final : private runtime::RowMasks {
 public:
  using Clock = std::function<Time()>;

  /// Errors: kUsage when the options ask for more than the plan has.
  EngineCore(runtime::Executor& executor, const EngineOptions& options, Clock clock, StepWatch* watch = nullptr);
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;
  ~EngineCore() override;

  /// A checked request with its samplers and stream.
  struct Prepared;
  struct PreparedDeleter {
    void operator()(Prepared* prepared) const;
  };
  using PreparedPtr = std::unique_ptr<Prepared, PreparedDeleter>;
  /// Thread-safe. Checks everything except the queue and the engine's health.
  [[nodiscard]] std::expected<PreparedPtr, Refusal> prepare(Request request) const;
  static const std::shared_ptr<Stream>& stream_of(const PreparedPtr& prepared);

  /// Queues a prepared request.
  std::expected<RequestId, Refusal> submit(PreparedPtr prepared);
  /// Ends a request in any state. Returns false if it has ended already.
  bool end(RequestId request, FinishReason reason, const std::string& error = {});
  void end_all(FinishReason reason, const std::string& error);
  /// Cancels requests whose clients are gone.
  void end_abandoned();
  /// Ends all streams without cleaning up requests. Thread-safe: called by the watchdog while a step is stuck.
  void end_streams(FinishReason reason, const std::string& error);

  /// Runs one step. Returns false if there is nothing to run before next_event(). Failures of a step go to its
  /// requests' streams; throws only Error(kInternal) for bugs.
  bool step();
  [[nodiscard]] Time next_event() const { return scheduler_.next_event(); }
  [[nodiscard]] std::size_t open() const { return requests_.size(); }
  [[nodiscard]] bool idle() const { return scheduler_.idle(); }
  [[nodiscard]] Health health() const;
  /// Time at which an unhealthy engine accepts requests again.
  [[nodiscard]] Time unhealthy_until() const { return unhealthy_until_; }
  [[nodiscard]] EngineMetrics metrics() const;
  [[nodiscard]] const EngineOptions& options() const { return options_; }
  /// The model is an encoder: it generates no tokens.
  [[nodiscard]] bool encodes() const { return batch_limits_.whole_prompts; }
  [[nodiscard]] const Scheduler& scheduler() const { return scheduler_; }

 private:
  /// Result of a step. tokens[row] is a token id or kNoFiniteLogits, or kNoToken if the row's logits are to be used.
  struct StepRows {
    std::span<const std::int32_t> tokens;
    std::span<const float> logits;  ///< logits, or hidden rows with StepPlan::hidden
  };
  /// State of running ahead.
  struct Ahead {
    const StepPlan* plan = nullptr;  ///< first step of the loop; nullptr: not running ahead
    bool ending = false;             ///< no more steps are submitted
    // Steps reserved, and steps submitted so far.
    std::size_t steps = 0, submitted = 0;
    bool masked = false;  ///< some sequence has masks
  };

  void end_expired();
  bool choose_samplers(const StepPlan& plan);
  [[nodiscard]] bool loops_with(std::size_t sequences) const;
  bool try_run_ahead(const StepPlan& plan);
  void start_loop(const StepPlan& plan);
  bool step_ahead();
  void finish_step_ahead(std::span<const std::int32_t> tokens);
  void submit_ahead();
  void end_ahead();
  void stop_loop();
  bool drop_loop() noexcept;
  /// Runs `body` under guard() without allocating a std::function.
  template <class Body>
  bool run(Body&& body) {
    return guard([](void* it) { (*static_cast<std::remove_reference_t<Body>*>(it))(); }, &body);
  }
  bool guard(void (*call)(void*), void* body);
  /// Runs `body`, which gives tokens to their requests, under the watchdog.
  template <class Body>
  void watch_tokens(Body&& body) {
    if (watch_ != nullptr) watch_->begin(StepWatch::Part::kTokens);
    body();
    if (watch_ != nullptr && watch_->end()) end_stuck("error[internal]: the tokens of a step took too long");
  }
  void end_stuck(const char* line);
  void finish_step(const StepRows& rows, bool hidden);
  void failed(bool recoverable, const std::string& line);
  [[nodiscard]] std::span<const float> logits_of(const StepRows& rows, std::size_t row) const {
    return rows.logits.subspan(row * executor_.vocab(), executor_.vocab());
  }
  void find_masks(const StepPlan& plan);
  void begin_masks();
  void end_masks();
  void wait_for_late_masks();
  [[nodiscard]] bool is_masked(std::size_t row) const override {
    return row < row_masks_.size() && row_masks_[row] != nullptr;
  }
  std::span<const std::uint32_t> mask(std::size_t row) override;
  [[nodiscard]] RowMasks* masks_of_step();
  std::int32_t choose(runtime::Sampler& sampler, const StepRows& rows, std::size_t row,
                      std::span<const std::uint32_t> mask);
  void handle_token(const StepOutput& given, const StepRows& rows);
  bool take_token(SequenceKey key, Prepared& open, StreamEvent event, bool forced = false);
  void find_forced(SequenceKey key, Prepared& open);
  void append_forced();
  [[nodiscard]] bool is_worth_leaving() const;
  void add_hidden_rows(const StepOutput& given, std::span<const float> rows);
  void count_token(SequenceKey key, Prepared& open);
  void end_sample(Prepared& open, StreamEvent event);
  void close(Prepared& open);

  runtime::Executor& executor_;
  EngineOptions options_;
  Clock clock_;
  StepWatch* watch_;
  BatchLimits batch_limits_;
  runtime::KvBlockPool pool_;
  Scheduler scheduler_;
  BatchBuilder batch_;
  runtime::SamplerScratch scratch_;
  runtime::DecodeLoop* device_;                    ///< samples on the device; nullptr: the host samples
  std::vector<const runtime::Sampler*> samplers_;  ///< one per row of the step; nullptr: sampled on the host
  std::vector<std::shared_ptr<runtime::Constrained>> mask_rows_;  ///< that get a token from the step
  std::vector<SequenceKey> mask_keys_;                            ///< their samples
  std::vector<std::shared_ptr<runtime::Constrained>> row_masks_;  ///< [rows of the step]; null: no mask
  runtime::MaskThreads masks_;
  bool masks_begun_ = false;
  const bool masks_beside_steps_;  ///< false if the steps themselves keep every CPU busy: masks follow them then
  Time masks_begun_at_{};
  bool stuck_before_masks_ = false;  ///< the step was given up before its masks were waited for
  std::vector<SequenceKey> forced_;  ///< samples for which tokens are forced
  Ahead ahead_;
  bool loop_open_ = false;            ///< the device's loop was started and not stopped
  mutable std::mutex streams_mutex_;  ///< protects changes of requests_ against end_streams
  std::unordered_map<RequestId, PreparedPtr> requests_;
  EngineMetrics metrics_;
  std::size_t failures_in_row_ = 0, steps_since_failure_ = 0;
  Time unhealthy_until_{};
  bool ever_failed_ = false;
};

}  // namespace forge::engine
