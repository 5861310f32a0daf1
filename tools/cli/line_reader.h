#pragma once
// Reads lines from a terminal for the chat: with libedit (editing, history) if the terminal supports it, else as the
// terminal driver delivers them. Waits in poll(), without using the CPU. Prompts go to stderr.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace forge::tools {

class LineReader {
 public:
  enum class Event : std::uint8_t {
    kLine,
    kCancelled,  ///< Ctrl-C: the typed text is discarded
    kEnd,        ///< Ctrl-D, or the terminal was closed
  };

  /// Reads standard input. `history`: earlier lines, oldest first. Sets the process's LC_CTYPE to UTF-8.
  explicit LineReader(const std::vector<std::string>& history);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Reads the next line, without its newline. Errors: Interrupted for SIGTERM and SIGHUP; kIo.
  Event read(const std::string& prompt, std::string& line);
  /// Adds a line to the history.
  void remember(std::string_view line);

 private:
  class Source;
  class Plain;
  class Edited;
  std::unique_ptr<Source> source_;
};

}  // namespace forge::tools
