#include "support/os/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/error.h"
#include "support/os/interrupt.h"
#include "support/os/unique_fd.h"

namespace forge {
namespace {

bool can_draw() {
  static const bool can = ::isatty(STDERR_FILENO) == 1 && !terminal_is_dumb();
  return can;
}

std::atomic<bool> progress_shown{false};
constexpr std::size_t kNoteCharsMax = 600;

}  // namespace

void Output::write(std::string_view text) {
  while (!text.empty() && !closed_) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EPIPE) {
      closed_ = true;
    } else if (errno == EINTR) {
      check_interrupt();
    } else {
      throw Error(ErrorCode::kIo, "cannot write to standard output", std::strerror(errno));
    }
  }
}

void say(std::string_view text) noexcept {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

void note(std::string_view line) {
  end_progress();
  say(printable(line, kNoteCharsMax) + '\n');
}

void warn(std::string_view line) {
  constexpr std::string_view kError = "error";
  const bool coded = line.starts_with(kError);
  note((coded ? "warning" : "warning: ") + std::string(coded ? line.substr(kError.size()) : line));
}

std::string strip_error_code(std::string_view line) {
  const auto end = line.find("]: ");
  return std::string(line.starts_with("error[") && end != line.npos ? line.substr(end + 3) : line);
}

bool terminal_is_dumb() {
  const char* term = std::getenv("TERM");
  return term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
}

void progress(std::string_view doing) {
  if (!can_draw()) return;
  // \r moves to the start of the line and \033[K erases it.
  say(fmt::format("\r\033[K{}...", printable(doing, 70)));
  progress_shown = true;
}

void end_progress() noexcept {
  if (progress_shown.exchange(false)) say("\r\033[K");
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string read_text(const std::string& path, std::size_t bytes_max) {
  const bool from_stdin = path == "-";
  const auto fail = [&](std::string why) {
    return Error(ErrorCode::kIo, from_stdin ? "cannot read standard input" : "cannot read " + printable(path, 200),
                 std::move(why), "check the path and its permissions");
  };
  const UniqueFd opened(from_stdin ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) throw fail(std::strerror(errno));
  std::string text;
  std::array<char, 65536> piece;
  while (true) {
    const ssize_t n = ::read(opened.get(), piece.data(), piece.size());
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) {
      check_interrupt();
    } else if (n < 0) {
      throw fail(std::strerror(errno));
    } else {
      text.append(piece.data(), static_cast<std::size_t>(n));
      if (text.size() > bytes_max)
        throw Error(ErrorCode::kPrompt, "the text is too long", fmt::format("more than {}", human_bytes(bytes_max)),
                    "give less text");
    }
  }
}

}  // namespace forge
