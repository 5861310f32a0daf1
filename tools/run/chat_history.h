#pragma once
// What was typed in earlier chats: a text file, an entry a line, that only its owner may read.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace forge::tools {

class ChatHistory {
 public:
  static constexpr std::size_t kEntriesMax = 1000;

  /// $XDG_STATE_HOME/forge/chat_history, else below ~/.local/state (XDG Base Directory Specification 0.8, which has
  /// relative paths ignored); nullopt when neither variable names a folder.
  [[nodiscard]] static std::optional<std::filesystem::path> default_path();

  /// Nothing is read or written without a path.
  explicit ChatHistory(std::optional<std::filesystem::path> path) : path_(std::move(path)) {}

  /// The last kEntriesMax entries, oldest first; none when there is no such file. A file that has grown to twice as
  /// many is cut to them. Errors: kIo.
  [[nodiscard]] std::vector<std::string> load();

  /// Appends one entry, so that chats at the same time keep each other's; not the one before it again. Control
  /// characters become spaces. Folder and file are made when they are missing, with modes 0700 and 0600; what is no
  /// regular file (a link to /dev/null) keeps its mode, and is not read. Errors: kIo.
  void append(std::string_view entry);

 private:
  std::optional<std::filesystem::path> path_;
  std::string last_;
};

}  // namespace forge::tools
