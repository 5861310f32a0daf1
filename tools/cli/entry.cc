#include "tools/cli/entry.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "support/error.h"
#include "support/os/console.h"
#include "support/os/interrupt.h"

namespace forge::tools {
namespace {

/// Opens /dev/null in place of each standard stream that the caller has closed. Otherwise the next file that is opened
/// would get the descriptor 0, 1 or 2, and the tool would write its output into that file. stdin and stdout are opened
/// in the wrong direction, so that using them is an error; stderr is writable, because notes may be lost silently.
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

int run_tool(const std::function<int()>& body) noexcept {
  try {
    keep_standard_streams();
    install_interrupt_handlers();
    (void)std::signal(SIGPIPE, SIG_IGN);
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
