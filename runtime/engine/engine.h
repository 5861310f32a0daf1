#pragma once
// The engine as the server and the tools use it: one thread runs steps, any thread submits requests and reads streams.
// It wraps EngineCore (engine_core.h), which has no thread.
//
//   client threads --submit--> Mailbox --> engine thread: turn() = take requests, EngineCore::step(), publish status
//         ^                                                             |
//         +------------- Stream (tokens, end of each sample) <----------+
//
// All device memory is allocated by the executor before. A request owns its token ids and, while it runs, KV blocks.
//
// Faults. A step that fails with a RecoverableError is repeated for its requests after a pause that doubles each time,
// up to a limit; other failures end the step's requests with an error. If a step does not return in time, the watchdog
// ends all requests with an error at once, and the engine is unhealthy and refuses requests until the step returns.

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/engine_core.h"
#include "runtime/engine/watchdog.h"

namespace forge::engine {

/// State shared by request handles and the engine's thread, protected by `mutex`. Lives as long as any of them.
struct Mailbox {
  std::mutex mutex;
  /// Signalled when something for the engine's thread has changed.
  std::condition_variable changed;
  std::vector<EngineCore::PreparedPtr> arrived;
  std::size_t waiting = 0;  ///< requests in the engine's queue when it last looked
  std::size_t open = 0;     ///< requests that have not ended, in the mailbox and in the engine
  bool abandoned = false;   ///< true if some stream was abandoned since the engine last looked
  bool closing = false, stopped = false;
};

/// A client's handle of one request. Cancels the request on destruction if it has not ended.
class RequestHandle {
 public:
  RequestHandle(std::shared_ptr<Stream> stream, std::shared_ptr<Mailbox> mailbox)
      : stream_(std::move(stream)), mailbox_(std::move(mailbox)) {}
  RequestHandle(RequestHandle&&) noexcept = default;
  RequestHandle& operator=(RequestHandle&& other) noexcept;
  ~RequestHandle() { cancel(); }

  /// Waits up to `patience` for the next event; see Stream::next. The other functions are Stream's, too.
  [[nodiscard]] std::optional<StreamEvent> next(Time patience) { return stream_->next(patience); }
  [[nodiscard]] bool finished() const { return stream_->finished(); }
  [[nodiscard]] Usage usage() const { return stream_->usage(); }
  [[nodiscard]] FinishReason finish_reason(std::uint32_t sample = 0) const { return stream_->finish_reason(sample); }
  /// Cancels the request; the stream ends with FinishReason::kCancelled.
  void cancel();

 private:
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Mailbox> mailbox_;
};

/// A snapshot of the engine's state.
struct EngineStatus {
  Health health = Health::kHealthy;
  std::size_t open = 0;  ///< requests that have not ended; 0 means that all KV blocks are given back
  EngineMetrics metrics;
};

/// See the head of this file.
class Engine final : private StepWatch {
 public:
  /// Starts the thread. Errors: kUsage when the options ask for more than the plan has.
  explicit Engine(std::unique_ptr<runtime::Executor> executor, const EngineOptions& options = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Cancels all requests and waits for the step in flight.
  ~Engine() override;

  /// Thread-safe. Checks the request and queues it; never waits for a step. Refused requests are returned as Refusal.
  [[nodiscard]] std::expected<RequestHandle, Refusal> submit(Request request);
  /// Which of several requests was refused, and why. A full queue or an unhealthy engine refuses the first.
  struct RefusedOne {
    Refusal refusal;
    std::size_t index = 0;
  };
  /// The same for several requests, all or none. The engine's thread sees them at once, so that they can share a step.
  [[nodiscard]] std::expected<std::vector<RequestHandle>, RefusedOne> submit_all(std::vector<Request> requests);
  /// Thread-safe. Metrics are as of the last step.
  [[nodiscard]] EngineStatus status() const;
  /// Refuses new requests from now on; open requests continue.
  void close();

  [[nodiscard]] const runtime::Executor& executor() const { return *executor_; }
  [[nodiscard]] const EngineOptions& options() const { return core_.options(); }
  /// The most sequences that run at once, and so the most samples of one request.
  [[nodiscard]] std::size_t sequences() const { return core_.scheduler().limits().sequences; }
  /// The model is an encoder: it generates no tokens.
  [[nodiscard]] bool encodes() const { return core_.encodes(); }

 private:
  void begin(Part part) override;
  bool end() override { return watchdog_.end(); }
  void run();
  void turn();
  void publish();
  void give_up();
  void end_arrived(FinishReason reason, const std::string& error);
  [[nodiscard]] Health health() const;
  [[nodiscard]] std::optional<Refusal> refusal(std::size_t count) const;

  std::unique_ptr<runtime::Executor> executor_;
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  // Declared after the executor and before the thread: members are destroyed in reverse order.
  Watchdog watchdog_;
  EngineCore core_;
  mutable std::mutex status_mutex_;
  EngineStatus status_;
  Time unhealthy_until_{};
  std::atomic<bool> stuck_{false}, broken_{false};
  std::atomic<Part> part_{Part::kDevice};  ///< what the watchdog looks at
  std::thread thread_;
};

}  // namespace forge::engine
