#pragma once
// Notices a step that takes longer than it may. A thread of its own looks now and then, so a step costs two locks that
// nobody else holds.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/engine/request.h"

namespace forge::engine {

class Watchdog {
 public:
  /// `limit` zero: watches nothing. `on_stuck` is called once for a step, on the watchdog's thread, while that step is
  /// still under way; end() waits for it.
  Watchdog(Time limit, std::function<void()> on_stuck);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  void begin();
  /// Whether the step took too long.
  bool end();

 private:
  void watch();

  Time limit_;
  std::function<void()> on_stuck_;
  std::mutex mutex_;
  std::condition_variable stop_;
  std::chrono::steady_clock::time_point begun_;
  bool running_ = false, stuck_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace forge::engine
