#include "support/os/interrupt.h"

#include <array>
#include <csignal>

namespace forge {
namespace {

// The only type that a signal handler may write portably (C++ [support.signal]); 0 means no signal yet.
volatile std::sig_atomic_t pending_signal = 0;

void record_signal(int signal) {
  pending_signal = signal;
}

}  // namespace

void install_interrupt_handlers() {
  for (const int signal : std::array{SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = record_signal;
    // SA_RESETHAND restores the default action after the first signal, which makes the second one fatal.
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    (void)sigaction(signal, &action, nullptr);
  }
}

bool interrupted() noexcept {
  return pending_signal != 0;
}

void clear_interrupt() noexcept {
  pending_signal = 0;
  install_interrupt_handlers();
}

bool consume_interrupt() {
  if (pending_signal != SIGINT) {
    check_interrupt();
    return false;
  }
  clear_interrupt();
  return true;
}

void check_interrupt() {
  if (interrupted()) throw Interrupted{static_cast<int>(pending_signal)};
}

}  // namespace forge
