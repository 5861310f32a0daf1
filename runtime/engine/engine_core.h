#pragma once
// The engine without threads: requests, their samplers and streams, the scheduler and the executor, moved on one step
// at a time by whoever calls step(). Engine (engine.h) gives it a thread; tests drive it with a clock of their own.
//
// What a request gets does not depend on what else runs: its tokens come from logits that executors compute in a fixed
// order whatever the batch, the chunks or the reused prefix, and from draws that are numbered per sample (on the CPU
// bit for bit; on GPUs as far as their logits are). Sample s of a request draws like a request of its own with seed +
// s.
//
// Where the device can choose tokens it does, and only tokens come to the host; rows whose logits the host needs (log-
// probabilities, penalties, bias, several samples of one prompt) go the long way. While the batch stays the same, steps
// run ahead on the device: each feeds what the last one chose, and the host gives tokens on meanwhile. An arrival that
// has a place, or a request that ends, lets the steps in flight come home, and then a new step is planned.

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
#include "runtime/sampler.h"

namespace forge::engine {

struct Request {
  std::vector<std::int32_t> prompt;
  /// Of what keys and values depend on beside the ids (an adapter, images): only requests with the same one share a
  /// prompt's prefix.
  std::uint64_t extra_hash = 0;
  runtime::SamplerParams sampling;
  std::size_t max_tokens = 0;  ///< of each sample; 0: what the context leaves
  std::size_t samples = 1;
  int priority = 0;
  Wants wants = Wants::kTokens;           ///< a row: of one sample, with max_tokens 0; what is about tokens is ignored
  Time timeout = kNever;                  ///< from submission to the end
  bool logprobs = false;                  ///< of each token
  std::size_t likeliest = 0;              ///< with logprobs: how many others are told
  std::vector<std::int32_t> stop_tokens;  ///< end a sample and are not handed on
  /// Whether a sample ends with this token (a stop string); called by the engine's thread, in the order of tokens.
  std::function<bool(std::uint32_t sample, std::int32_t token)> stop;
  std::function<void()> on_event;  ///< Stream's
};

inline constexpr std::size_t kLikeliestMax = 64;

struct EngineOptions {
  std::size_t step_tokens = 0;    ///< 0: the plan's largest step
  std::size_t prompt_tokens = 0;  ///< up to which prompts share a step (SchedulerLimits); 0: the program's
  std::size_t sequences = 0;      ///< that run at once; 0: the plan's batch
  std::size_t queue = 256;        ///< that wait
  Time aging = std::chrono::seconds(10);
  bool reuse_prefixes = true;
  std::size_t retries = 3;                       ///< of a request whose step failed recoverably, before it gets a token
  Time backoff = std::chrono::milliseconds(50);  ///< before the first; doubles
  Time backoff_max = std::chrono::seconds(5);
  std::size_t failures_unhealthy = 3;         ///< steps in a row
  std::size_t steps_healthy = 32;             ///< that work before a degraded engine is healthy again
  Time probation = std::chrono::seconds(10);  ///< after which an unhealthy engine tries again
  Time watchdog = std::chrono::seconds(60);   ///< for one step; zero: none
  std::size_t steps_ahead = 64;               ///< that may follow each other on the device without a plan; 1: none
};

enum class Health : std::uint8_t {
  kHealthy,
  kDegraded,   ///< steps failed a short while ago
  kUnhealthy,  ///< steps fail, or one does not come back; requests are refused
};

/// Counters only grow. Times are sums over requests, of those that came so far.
struct EngineMetrics {
  std::uint64_t submitted = 0, refused = 0;
  std::array<std::uint64_t, 6> finished{};  ///< samples, by FinishReason
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, fed_tokens = 0;
  std::uint64_t steps = 0, steps_ahead = 0, failed_steps = 0, stuck_steps = 0, retries = 0;
  std::uint64_t preemptions = 0, prefix_queries = 0, prefix_hits = 0, evictions = 0;
  Time queued{}, to_first_token{}, end_to_end{}, in_steps{};
  std::size_t running = 0, waiting = 0;  ///< now
  std::size_t kv_blocks = 0, kv_blocks_free = 0, kv_blocks_idle = 0;
  std::uint64_t device_allocations = 0;  ///< made so far
};

/// Hears of each step; end() says whether it was given up meanwhile.
class StepWatch {
 public:
  StepWatch() = default;
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;
  virtual ~StepWatch() = default;
  virtual void begin() = 0;
  virtual bool end() = 0;
};

class EngineCore {
 public:
  using Clock = std::function<Time()>;

  /// Errors: kUsage when the options ask for more than the plan has.
  EngineCore(runtime::Executor& executor, const EngineOptions& options, Clock clock, StepWatch* watch = nullptr);
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;
  ~EngineCore();

  /// A request that has been checked and has its samplers and stream.
  struct Prepared;
  struct PreparedDeleter {
    void operator()(Prepared* prepared) const;
  };
  using PreparedPtr = std::unique_ptr<Prepared, PreparedDeleter>;
  /// From any thread. Looks at all but the queue and the health.
  [[nodiscard]] std::expected<PreparedPtr, Refusal> prepare(Request request) const;
  static const std::shared_ptr<Stream>& stream_of(const PreparedPtr& prepared);

  std::expected<RequestId, Refusal> submit(PreparedPtr prepared);
  /// Ends a request, whatever it is doing. False: it has ended.
  bool end(RequestId request, FinishReason reason, const std::string& error = {});
  void end_all(FinishReason reason, const std::string& error);
  /// Cancels requests to which nobody listens.
  void end_abandoned();
  /// Ends all streams, and leaves the rest for later: from any thread, while a step is stuck.
  void end_streams(FinishReason reason, const std::string& error);

  /// Runs one step. False: there is nothing to run before next_event(). Errors: kInternal for a bug; requests fail by
  /// their streams.
  bool step();
  [[nodiscard]] Time next_event() const { return scheduler_.next_event(); }
  [[nodiscard]] std::size_t open() const { return requests_.size(); }
  [[nodiscard]] bool idle() const { return scheduler_.idle(); }
  [[nodiscard]] Health health() const;
  /// When an unhealthy engine tries again.
  [[nodiscard]] Time unhealthy_until() const { return unhealthy_until_; }
  [[nodiscard]] EngineMetrics metrics() const;
  [[nodiscard]] const EngineOptions& options() const { return options_; }
  [[nodiscard]] const Scheduler& scheduler() const { return scheduler_; }

 private:
  /// What a step leaves for its rows: a token or kNoNumbers, or logits where that is kNoToken.
  struct StepRows {
    std::span<const std::int32_t> tokens;
    std::span<const float> logits;  ///< or rows of the final norm, with StepPlan::hidden
  };
  /// Steps that run on the device without a plan between.
  struct Ahead {
    const StepPlan* plan = nullptr;  ///< of the first of them; nullptr: none run
    bool ending = false;             ///< no more are submitted
    std::size_t steps = 0, submitted = 0;
  };

  void end_expired();
  bool choose_samplers(const StepPlan& plan);
  bool goes_ahead(const StepPlan& plan);
  void start_loop(const StepPlan& plan);
  bool step_ahead();
  void end_ahead();
  void stop_loop();
  bool drop_loop() noexcept;
  template <class Body>
  bool run(Body&& body) {
    return guard([](void* it) { (*static_cast<std::remove_reference_t<Body>*>(it))(); }, &body);
  }
  bool guard(void (*call)(void*), void* body);
  void finish_step(const StepRows& rows, bool hidden);
  void failed(bool recoverable, const std::string& line);
  [[nodiscard]] std::span<const float> logits_of(const StepRows& rows, std::size_t row) const {
    return rows.logits.subspan(row * executor_.vocab(), executor_.vocab());
  }
  std::int32_t choose(runtime::Sampler& sampler, const StepRows& rows, std::size_t row);
  void take_token(const RowsGiven& given, const StepRows& rows);
  void take_rows(const RowsGiven& given, std::span<const float> rows);
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
  runtime::DecodeLoop* device_;                    ///< chooses tokens; nullptr: the host does
  std::vector<const runtime::Sampler*> samplers_;  ///< of the step's rows
  Ahead ahead_;
  bool loop_open_ = false;            ///< the device's loop has been started and not been stopped
  mutable std::mutex streams_mutex_;  ///< of requests_ against end_streams
  std::unordered_map<RequestId, PreparedPtr> requests_;
  EngineMetrics metrics_;
  std::size_t failures_in_row_ = 0, steps_since_failure_ = 0;
  Time unhealthy_until_{};
  bool ever_failed_ = false;
};

}  // namespace forge::engine
