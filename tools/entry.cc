#include "tools/entry.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

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

/// A standard stream that the caller has closed becomes one that fails when it is used: its number would go to the next
/// file that is opened, and text would be written into that. Notes are best effort, so standard error takes them.
void keep_standard_streams() {
  constexpr std::array kModes{O_WRONLY, O_RDONLY, O_WRONLY};
  for (int stream = 0; stream < static_cast<int>(kModes.size()); ++stream)
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      (void)::open("/dev/null", kModes.at(static_cast<std::size_t>(stream)));
}

int fail(const Error& error) {
  end_progress();
  say(error.line() + '\n');
  return error.exit_status();
}

int fail_unknown(const std::exception& error) {
  return fail(Error(ErrorCode::kInternal, error.what(), {}, "please report this with the command"));
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
    keep_standard_streams();
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
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::resource_unavailable_try_again) return fail_unknown(error);
      return fail(Error(ErrorCode::kMemory, "cannot start a thread", error.code().message(),
                        "allow this user more processes (ulimit -u) or more memory"));
    } catch (const std::exception& error) {
      return fail_unknown(error);
    }
  } catch (...) {
    say("error[internal]: the error could not be reported\n");
    return 1;
  }
}

}  // namespace forge::tools
