#pragma once
// Ctrl-C, SIGTERM and SIGHUP as a flag that long work polls between steps.

namespace forge {

/// Thrown by check_interrupt. A tool's main turns it into exit status 128 + signal (130 for Ctrl-C).
struct Interrupted {
  int signal = 0;
};

/// Installs the handlers; a signal that the caller has ignored (nohup) stays ignored. The first signal only sets the
/// flag; the second one ends the process at once.
void install_interrupt_handlers();
/// Has one of the signals come?
[[nodiscard]] bool interrupted() noexcept;
/// Clears the flag; the next signal counts as the first again.
void clear_interrupt() noexcept;
/// For programs that go on after Ctrl-C: true, and the flag cleared, if Ctrl-C has come.
/// Throws Interrupted for another signal.
bool consume_interrupt();
/// Throws Interrupted if a signal has come. Called between steps of work, so that temporary files are removed and
/// output ends at a whole line.
void check_interrupt();

}  // namespace forge
