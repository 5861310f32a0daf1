#pragma once
// Detects a step that takes too long. A separate thread checks four times per `limit`, so begin() and end() cost only
// an uncontended lock each.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/engine/request.h"

namespace forge::engine {

/// One watchdog watches one step at a time.
class Watchdog {
 public:
  /// `limit` zero: no watchdog. `on_stuck` is called once per step that exceeds the limit, on the watchdog's thread,
  /// while the step still runs; end() waits until the callback has returned.
  Watchdog(Time limit, std::function<void()> on_stuck);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// A step begins; end() returns true if it took too long.
  void begin();
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
