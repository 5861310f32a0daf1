#pragma once
// What every tool's main does: signals, and errors as one line and an exit status.

#include <functional>

namespace forge::tools {

/// Thrown by check_interrupt; run_tool turns it into 128 + signal (130 for Ctrl-C).
struct Interrupted {
  int signal = 0;
};

/// Has Ctrl-C, SIGTERM or SIGHUP come? The first one only sets this; the second one ends the process at once.
[[nodiscard]] bool interrupted() noexcept;
/// What came is forgotten, and the next signal is the first again.
void forget_interrupt() noexcept;
/// For programs that go on after Ctrl-C: has it come? Then it is forgotten.
/// Throws Interrupted for another signal.
bool take_interrupt();
/// Throws Interrupted when it has: between steps of work, so that temporary files go and output ends whole.
void check_interrupt();

/// Runs `body` and gives the process's exit status: its result, or that of the error it throws, after one line on
/// stderr. SIGPIPE is ignored: Output tells when stdout's reader is gone.
int run_tool(const std::function<int()>& body) noexcept;

}  // namespace forge::tools
