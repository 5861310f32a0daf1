#pragma once
// Turns Ctrl-C, SIGTERM and SIGHUP into a flag that long work checks between steps, so that temporary files are removed
// and output ends with a whole line.

namespace forge {

/// Thrown by check_interrupt(). A tool's main exits with status 128 + signal (130 for Ctrl-C).
struct Interrupted {
  int signal = 0;
};

/// Installs the signal handlers. A signal that the parent process set to be ignored (nohup) stays ignored. The first
/// signal only sets the flag; the second one has its default effect and ends the process at once.
void install_interrupt_handlers();
/// True if one of the signals has arrived since the flag was last cleared.
[[nodiscard]] bool interrupted() noexcept;
/// Clears the flag and re-installs the handlers, so the next signal counts as the first again.
void clear_interrupt() noexcept;
/// For programs that continue after Ctrl-C, such as the interactive chat: returns true and clears the flag if Ctrl-C
/// was pressed. Throws Interrupted if another signal has arrived.
bool consume_interrupt();
/// Throws Interrupted if a signal has arrived. Call it between steps of long work.
void check_interrupt();

}  // namespace forge
