#pragma once
// The time limit of a compilation. It applies to CPU time, because on a busy machine a process may wait far longer than
// it computes. A process that uses no CPU time at all for as long as the limit counts as hanging.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace forge::codegen {

/// CPU time (user and system) of all processes of a process group and of their children that have ended. Nothing if
/// /proc has no such group. The resolution is the kernel's clock tick (10 ms).
[[nodiscard]] std::optional<std::chrono::milliseconds> group_cpu_time(pid_t group);

/// The rule, as a function of times only. The caller checks at deadline(); each check sets the next deadline.
class ComputeLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ComputeLimit(std::chrono::milliseconds limit) : limit_(limit) {}
  /// Starts a compilation. computed: the process's CPU time so far.
  void start(Clock::time_point now, std::chrono::milliseconds computed);
  [[nodiscard]] Clock::time_point deadline() const { return deadline_; }
  /// At the deadline: the reason why the process must be killed, or empty if it may continue until the next deadline.
  [[nodiscard]] std::string check(Clock::time_point now, std::chrono::milliseconds computed);

 private:
  std::chrono::milliseconds limit_;
  std::chrono::milliseconds before_{}, seen_{};  ///< CPU time at the start, and at the last check that saw progress
  Clock::time_point moved_, deadline_;           ///< moved_: time of that check
};

}  // namespace forge::codegen
