#pragma once
// The history of lines typed in chats: a text file with one entry per line, readable only by its owner.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::tools {

/// The history file. Used by the chat and its LineReader.
class ChatHistory {
 public:
  static constexpr std::size_t kEntriesMax = 1000;

  /// $XDG_STATE_HOME/forge/chat_history, or else ~/.local/state/forge/chat_history (XDG Base Directory Specification
  /// 0.8; relative paths are ignored as it demands); nullopt if neither XDG_STATE_HOME nor HOME is an absolute path.
  [[nodiscard]] static std::optional<std::filesystem::path> default_path();

  /// Without a path, nothing is read or written.
  explicit ChatHistory(std::optional<std::filesystem::path> path) : path_(std::move(path)) {}

  /// The last kEntriesMax entries, oldest first; none if the file does not exist. A file with twice as many or more is
  /// cut to these. Errors: kIo.
  [[nodiscard]] std::vector<std::string> load();

  /// Appends one entry with a single write in append mode, so that concurrent chats do not lose each other's entries.
  /// An entry equal to the previous one is skipped. Control characters become spaces. Creates folder and file with
  /// modes 0700 and 0600; a file that is not regular (/dev/null through a link) keeps its mode and is never read.
  /// Errors: kIo.
  void append(std::string_view entry);

 private:
  std::optional<std::filesystem::path> path_;
  std::string last_;
};

}  // namespace forge::tools
