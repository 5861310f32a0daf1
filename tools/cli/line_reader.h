#pragma once
// Lines that a person types at a terminal: edited with libedit where the terminal can draw, else as the terminal's
// driver gives them. While it waits it sleeps in the kernel. What it shows goes to stderr.

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
    kCancelled,  ///< Ctrl-C: what was typed of the line is gone
    kEnd,        ///< Ctrl-D, or the terminal is gone
  };

  /// Reads standard input. `history`: earlier lines, oldest first. Sets the process's LC_CTYPE to UTF-8.
  explicit LineReader(const std::vector<std::string>& history);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its newline. Errors: Interrupted for signals that end programs, but SIGINT; kIo.
  Event read(const std::string& prompt, std::string& line);
  /// Makes a line one of the earlier ones.
  void remember(std::string_view line);

 private:
  class Source;
  class Plain;
  class Edited;
  std::unique_ptr<Source> source_;
};

}  // namespace forge::tools
