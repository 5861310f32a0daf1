#include "runtime/engine/watchdog.h"

#include <utility>

namespace forge::engine {

Watchdog::Watchdog(Time limit, std::function<void()> on_stuck) : limit_(limit), on_stuck_(std::move(on_stuck)) {
  if (limit_ > Time::zero()) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::begin() {
  const std::lock_guard lock(mutex_);
  begun_ = std::chrono::steady_clock::now();
  running_ = true;
  stuck_ = false;
}

bool Watchdog::end() {
  const std::lock_guard lock(mutex_);
  running_ = false;
  return stuck_;
}

/// The callback runs with the mutex held, so end() cannot return before it has finished.
void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    stop_.wait_for(lock, limit_ / 4, [&] { return stopping_; });
    if (!running_ || stuck_ || std::chrono::steady_clock::now() - begun_ < limit_) continue;
    stuck_ = true;
    on_stuck_();
  }
}

}  // namespace forge::engine
