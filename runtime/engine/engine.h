#pragma once
// The engine that programs use: one thread runs steps, any thread submits. All device memory is the executor's, taken
// before; a request owns its tokens and, while it runs, block numbers.
//
// Faults. A step that fails recoverably is tried again for its requests after a pause that doubles, up to a limit; what
// fails otherwise fails its requests. A step that does not come back is given up by a watchdog: every request ends with
// an error at once, the engine is unhealthy and refuses more until the step returns.

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

/// What connects handles and the engine; it lives as long as any of them.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable some;
  std::vector<EngineCore::PreparedPtr> arrived;
  std::size_t waiting = 0;  ///< in the engine, when it looked last
  std::size_t open = 0;     ///< here and there
  bool abandoned = false;   ///< some stream was
  bool closing = false, stopped = false;
};

/// A request of a client. When it dies, what has not ended is cancelled: the client is gone.
class RequestHandle {
 public:
  RequestHandle(std::shared_ptr<Stream> stream, std::shared_ptr<Mailbox> mailbox)
      : stream_(std::move(stream)), mailbox_(std::move(mailbox)) {}
  RequestHandle(RequestHandle&&) noexcept = default;
  RequestHandle& operator=(RequestHandle&& other) noexcept;
  ~RequestHandle() { cancel(); }

  [[nodiscard]] std::optional<StreamEvent> next(Time patience) { return stream_->next(patience); }
  [[nodiscard]] bool finished() const { return stream_->finished(); }
  [[nodiscard]] Usage usage() const { return stream_->usage(); }
  [[nodiscard]] FinishReason finish_reason(std::uint32_t sample = 0) const { return stream_->finish_reason(sample); }
  void cancel();

 private:
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<Mailbox> mailbox_;
};

struct EngineStatus {
  Health health = Health::kHealthy;
  std::size_t open = 0;  ///< requests that have not ended; 0 once everything of them is given back
  EngineMetrics metrics;
};

class Engine final : private StepWatch {
 public:
  /// Errors: kUsage when the options ask for more than the plan has.
  explicit Engine(std::unique_ptr<runtime::Executor> executor, const EngineOptions& options = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Cancels what is open, and waits for the step in flight.
  ~Engine() override;

  /// From any thread. What the request must keep to is checked here; it never waits.
  [[nodiscard]] std::expected<RequestHandle, Refusal> submit(Request request);
  /// From any thread; as of the last step.
  [[nodiscard]] EngineStatus status() const;
  /// Refuses new requests from now on; what is open goes on.
  void close();

  [[nodiscard]] const runtime::Executor& executor() const { return *executor_; }

 private:
  void begin() override;
  bool end() override { return watchdog_.end(); }
  void run();
  void turn();
  void publish();
  void give_up();
  void end_arrived(FinishReason reason, const std::string& error);
  [[nodiscard]] Health health() const;
  [[nodiscard]] std::optional<Refusal> refusal() const;

  std::unique_ptr<runtime::Executor> executor_;
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  Watchdog watchdog_;
  EngineCore core_;
  mutable std::mutex status_mutex_;
  EngineStatus status_;
  Time unhealthy_until_{};
  std::atomic<bool> stuck_{false}, broken_{false};
  std::thread thread_;
};

}  // namespace forge::engine
