#pragma once
// How long a compilation may take: so much CPU time, whatever the clock says, since on a busy machine a process may
// wait far longer than it computes. One that computes nothing at all for as long is taken to hang.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace forge::codegen {

/// CPU time of all processes of a group, user and system, and of their children that have ended. Nothing when /proc
/// does not tell. Its resolution is the kernel's clock tick (10 ms).
[[nodiscard]] std::optional<std::chrono::milliseconds> group_cpu_time(pid_t group);

/// The rule, on times alone. A check happens at deadline(); each one says when the next is due.
class ComputeLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ComputeLimit(std::chrono::milliseconds limit) : limit_(limit) {}
  /// computed: the process's CPU time so far.
  void start(Clock::time_point now, std::chrono::milliseconds computed);
  [[nodiscard]] Clock::time_point deadline() const { return deadline_; }
  /// At the deadline: why it has to end; empty when it may go on until the next deadline.
  [[nodiscard]] std::string check(Clock::time_point now, std::chrono::milliseconds computed);

 private:
  std::chrono::milliseconds limit_;
  std::chrono::milliseconds before_{}, seen_{};  ///< CPU time at the start, and at the last check that found more
  Clock::time_point moved_, deadline_;           ///< when that was
};

}  // namespace forge::codegen
