#include "runtime/engine/engine.h"

#include <fmt/format.h>

#include <utility>

namespace forge::engine {
namespace {

Time steady_now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

constexpr const char* kStepTimeout = "error[device]: a step took too long; the device does not respond";
constexpr const char* kTokensTimeout = "error[internal]: the tokens of a step took too long; a constraint hangs";

}  // namespace

RequestHandle& RequestHandle::operator=(RequestHandle&& other) noexcept {
  if (this != &other) {
    cancel();
    stream_ = std::move(other.stream_);
    mailbox_ = std::move(other.mailbox_);
  }
  return *this;
}

/// Marks the stream first and then wakes the engine's thread, which ends the request in its next turn.
void RequestHandle::cancel() {
  if (stream_ == nullptr || stream_->finished()) return;
  stream_->abandon();
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->abandoned = true;
  }
  mailbox_->changed.notify_one();
}

Engine::Engine(std::unique_ptr<runtime::Executor> executor, const EngineOptions& options)
    : executor_(std::move(executor)),
      watchdog_(options.watchdog, [this] { give_up(); }),
      core_(*executor_, options, steady_now, this) {
  publish();
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->closing = mailbox_->stopped = true;
  }
  mailbox_->changed.notify_one();
  thread_.join();
}

/// Why `count` more requests are refused. Called with the mailbox's mutex held.
std::optional<Refusal> Engine::refusal(std::size_t count) const {
  const auto refuse = [](RefusalKind kind, std::string message) {
    return Refusal{.kind = kind, .asked = 0, .limit = 0, .message = std::move(message)};
  };
  if (mailbox_->closing) return refuse(RefusalKind::kUnhealthy, "the engine is being shut down");
  if (health() == Health::kUnhealthy) return refuse(RefusalKind::kUnhealthy, "the device is failing, try again later");
  const std::size_t waiting = mailbox_->waiting + mailbox_->arrived.size(), most = core_.options().queue;
  if (waiting + count <= most) return std::nullopt;
  auto full = refuse(RefusalKind::kQueueFull,
                     fmt::format("the queue is full: {} requests are waiting, at most {} are allowed", waiting, most));
  full.asked = waiting + count;
  full.limit = most;
  return full;
}

std::expected<RequestHandle, Refusal> Engine::submit(Request request) {
  std::vector<Request> one;
  one.push_back(std::move(request));
  auto handles = submit_all(std::move(one));
  if (!handles) return std::unexpected(std::move(handles.error().refusal));
  return std::move(handles->front());
}

/// The expensive part (checks, samplers) runs on the caller's thread without a lock.
std::expected<std::vector<RequestHandle>, Engine::RefusedOne> Engine::submit_all(std::vector<Request> requests) {
  std::vector<EngineCore::PreparedPtr> good;
  std::vector<std::shared_ptr<Stream>> streams;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    auto prepared = core_.prepare(std::move(requests[i]));
    if (!prepared) return std::unexpected(RefusedOne{.refusal = std::move(prepared.error()), .index = i});
    streams.push_back(EngineCore::stream_of(*prepared));
    good.push_back(*std::move(prepared));
  }
  {
    const std::lock_guard lock(mailbox_->mutex);
    if (auto why = refusal(good.size())) return std::unexpected(RefusedOne{.refusal = *std::move(why)});
    mailbox_->open += good.size();
    for (auto& prepared : good) mailbox_->arrived.push_back(std::move(prepared));
  }
  mailbox_->changed.notify_one();
  std::vector<RequestHandle> handles;
  for (auto& stream : streams) handles.emplace_back(std::move(stream), mailbox_);
  return handles;
}

/// An unhealthy engine without work runs no step that could prove it healthy, so it accepts requests again after
/// probation.
Health Engine::health() const {
  if (broken_ || stuck_) return Health::kUnhealthy;
  const std::lock_guard lock(status_mutex_);
  const bool again = status_.health == Health::kUnhealthy && steady_now() >= unhealthy_until_;
  return again ? Health::kDegraded : status_.health;
}

EngineStatus Engine::status() const {
  std::size_t open = 0;
  {
    const std::lock_guard lock(mailbox_->mutex);
    open = mailbox_->open;
  }
  const auto now = health();
  const std::lock_guard lock(status_mutex_);
  return {.health = now, .open = open, .metrics = status_.metrics};
}

void Engine::close() {
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->closing = true;
}

/// Runs on the watchdog's thread while a step is stuck: clients get their error now. The engine's thread cleans up when
/// the step returns.
void Engine::give_up() {
  stuck_ = true;
  const char* const why = part_ == Part::kDevice ? kStepTimeout : kTokensTimeout;
  core_.end_streams(FinishReason::kError, why);
  end_arrived(FinishReason::kError, why);
}

/// Ends the streams of the requests in the mailbox. The requests stay there; turn() drops those whose stream has ended.
/// Streams are ended after the lock is released, because ending calls the client's on_event.
void Engine::end_arrived(FinishReason reason, const std::string& error) {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(mailbox_->mutex);
    for (const auto& prepared : mailbox_->arrived) streams.push_back(EngineCore::stream_of(prepared));
  }
  for (const auto& stream : streams) stream->end(reason, error);
}

/// Copies the core's state to where other threads can read it.
void Engine::publish() {
  const std::lock_guard lock(status_mutex_);
  status_.health = core_.health();
  unhealthy_until_ = core_.unhealthy_until();
  status_.metrics = core_.metrics();
}

/// EngineCore calls this when a step begins (StepWatch). Requests that the step admitted no longer count as waiting.
void Engine::begin(Part part) {
  part_ = part;
  if (part == Part::kDevice) {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->waiting = core_.scheduler().waiting();
  }
  watchdog_.begin();
}

/// One turn of the engine's thread: takes new requests, then runs one step, or sleeps if there is nothing to run.
void Engine::turn() {
  bool abandoned = false;
  std::vector<EngineCore::PreparedPtr> arrived;
  {
    const std::lock_guard lock(mailbox_->mutex);
    arrived.swap(mailbox_->arrived);
    mailbox_->waiting += arrived.size();
    abandoned = std::exchange(mailbox_->abandoned, false);
  }
  for (auto& prepared : arrived) {
    const auto stream = EngineCore::stream_of(prepared);
    if (stream->finished()) continue;  // ended before it reached the engine, e.g. cancelled
    if (const auto id = core_.submit(std::move(prepared)); !id)
      stream->end(FinishReason::kError, "error[run]: " + id.error().message);
  }
  if (abandoned) core_.end_abandoned();
  const bool ran = core_.step();
  stuck_ = false;
  publish();
  // Recount under the lock: requests may have arrived during the step.
  std::unique_lock lock(mailbox_->mutex);
  mailbox_->waiting = core_.scheduler().waiting();
  mailbox_->open = core_.open() + mailbox_->arrived.size();
  if (ran) return;
  const auto has_work = [&] { return mailbox_->stopped || mailbox_->abandoned || !mailbox_->arrived.empty(); };
  const auto next = core_.next_event();
  if (next == kNever)
    mailbox_->changed.wait(lock, has_work);
  else
    mailbox_->changed.wait_until(lock, std::chrono::steady_clock::time_point(next), has_work);
}

/// Main function of the engine's thread.
void Engine::run() {
  const auto stopped = [&] {
    const std::lock_guard lock(mailbox_->mutex);
    return mailbox_->stopped;
  };
  std::string why = "the engine was shut down";
  auto reason = FinishReason::kCancelled;
  try {
    while (!stopped()) turn();
  } catch (const std::exception& error) {  // a bug: the engine's state is no longer trusted
    broken_ = true;
    reason = FinishReason::kError;
    why = fmt::format("error[internal]: the engine failed: {}", error.what());
  }
  close();
  core_.end_streams(reason, why);
  end_arrived(reason, why);
}

}  // namespace forge::engine
