#include "tools/entry.h"

#include <fmt/core.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "support/error.h"
#include "tools/console.h"

namespace forge::tools {
namespace {

volatile std::sig_atomic_t pending_signal = 0;

void take_signal(int signal) {
  pending_signal = signal;
}

/// A signal that the caller has ignored (nohup) stays ignored.
void catch_signals() {
  for (const int signal : std::array{SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = take_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    (void)sigaction(signal, &action, nullptr);
  }
  (void)std::signal(SIGPIPE, SIG_IGN);
}

int fail(const Error& error) {
  end_progress();
  fmt::print(stderr, "{}\n", error.line());
  return error.exit_status();
}

}  // namespace

bool interrupted() noexcept {
  return pending_signal != 0;
}

void forget_interrupt() noexcept {
  pending_signal = 0;
  catch_signals();
}

bool take_interrupt() {
  if (pending_signal != SIGINT) {
    check_interrupt();
    return false;
  }
  forget_interrupt();
  return true;
}

void check_interrupt() {
  if (interrupted()) throw Interrupted{static_cast<int>(pending_signal)};
}

int run_tool(const std::function<int()>& body) noexcept {
  try {
    catch_signals();
    try {
      return body();
    } catch (const Interrupted& interrupt) {
      end_progress();
      return 128 + interrupt.signal;
    } catch (const Error& error) {
      return fail(error);
    } catch (const std::bad_alloc&) {
      return fail(Error(ErrorCode::kMemory, "out of memory", {}, "use a smaller context (-c) or a smaller model"));
    } catch (const std::exception& error) {
      return fail(Error(ErrorCode::kInternal, error.what(), {}, "please report this with the command"));
    }
  } catch (...) {
    (void)std::fputs("error[internal]: the error could not be reported\n", stderr);
    return 1;
  }
}

}  // namespace forge::tools
