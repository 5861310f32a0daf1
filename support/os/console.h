#pragma once
// stdout carries the answer and nothing else; notes and progress go to stderr, progress only to a terminal.

#include <cstdint>
#include <string>
#include <string_view>

namespace forge {

/// stdout, unbuffered. A reader that has gone away is no error: closed() tells, and further text is dropped.
class Output {
 public:
  /// Errors: kIo when writing fails otherwise (a full disk).
  void write(std::string_view text);
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  bool closed_ = false;
};

/// Text for people on stderr, as it is. Where it cannot be written nothing else changes: not the answer, not the
/// status.
void say(std::string_view text) noexcept;
/// One line on stderr; control characters are shown as escapes.
void note(std::string_view line);
/// A warning that begins like an error's line ("error[cache]: ..."): shown as "warning[cache]: ...".
void warn(std::string_view line);
/// An error's line without "error[code]: " in front, as a reason within another line; other text as it is.
[[nodiscard]] std::string strip_error_code(std::string_view line);
/// Can the terminal only print ($TERM unset or "dumb")? Then nothing is drawn over and no line is edited.
[[nodiscard]] bool terminal_is_dumb();
/// Shows what is being done in the terminal's last line until the next note, progress or end; else nothing.
void progress(std::string_view doing);
void end_progress() noexcept;

/// "94.0 MiB", "512 B"
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);

/// All of a file, or of stdin for "-". Errors: kIo; kPrompt above `bytes_max`.
[[nodiscard]] std::string read_text(const std::string& path, std::size_t bytes_max);

}  // namespace forge
