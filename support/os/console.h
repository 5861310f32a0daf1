#pragma once
// Output of the command-line tools. stdout carries the answer and nothing else, so it can be piped. Notes, warnings and
// progress go to stderr, and progress is shown only on a terminal.

#include <cstdint>
#include <string>
#include <string_view>

namespace forge {

/// Unbuffered stdout. A reader that closed the pipe is not an error: closed() becomes true and further text is dropped.
class Output {
 public:
  /// Writes all of `text`. Errors: kIo for any failure other than a closed pipe, such as a full disk. Throws
  /// Interrupted if a signal arrives while it waits.
  void write(std::string_view text);
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  bool closed_ = false;
};

/// Writes text to stderr as it is. A failure is ignored: it changes neither the answer nor the exit status.
void say(std::string_view text) noexcept;
/// Writes one line to stderr, with control characters escaped. Removes the progress line first.
void note(std::string_view line);
/// note() for a warning. A line that starts like an error ("error[cache]: ...") is shown as "warning[cache]: ...", any
/// other line as "warning: ...".
void warn(std::string_view line);
/// An error's line without the leading "error[code]: ", for quoting it as the reason inside another line. Other text is
/// returned unchanged.
[[nodiscard]] std::string strip_error_code(std::string_view line);
/// True if the terminal has no cursor control ($TERM is unset, empty or "dumb"): no progress line and no line editing
/// then.
[[nodiscard]] bool terminal_is_dumb();
/// Shows "doing..." in the last line of the terminal until the next progress(), note() or end_progress(). Does nothing
/// if stderr is not a terminal.
void progress(std::string_view doing);
/// Erases the progress line, if one is shown.
void end_progress() noexcept;

/// A size for people, in binary units: "512 B", "94.0 MiB".
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);

/// Reads all of the file `path`, or of stdin if `path` is "-". Errors: kIo; kPrompt if there are more than `bytes_max`
/// bytes. Throws Interrupted if a signal arrives while it waits.
[[nodiscard]] std::string read_text(const std::string& path, std::size_t bytes_max);

}  // namespace forge
