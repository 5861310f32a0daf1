// The chat's input history: where it is stored, that only its owner can read it, and how it is shortened.

#include "tools/run/chat_history.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "support/error.h"
#include "support/os/unique_fd.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace forge::tools {
namespace {

using Entries = std::vector<std::string>;

/// Sets an environment variable for one test (null: unset) and restores it afterwards.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const {
    if (value != nullptr)
      ::setenv(name_, value, 1);
    else
      ::unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> before_;
};

unsigned mode_of(const std::filesystem::path& path) {
  struct stat status{};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 0777U;
}

}  // namespace

TEST_CASE("the history is in the state folder; without one there is no history") {
  const Variable home("HOME", "/home/USER");
  const Variable state("XDG_STATE_HOME", "/var/state");
  CHECK(ChatHistory::default_path() == "/var/state/forge/chat_history");
  const Variable relative("XDG_STATE_HOME", "state");
  CHECK(ChatHistory::default_path() == "/home/USER/.local/state/forge/chat_history");
  const Variable no_home("HOME", nullptr);
  CHECK(!ChatHistory::default_path());
  ChatHistory none(std::nullopt);
  none.append("x");
  CHECK(none.load().empty());
}

TEST_CASE("entries are kept in order, one per line, readable by their owner only") {
  const tests::TempDir folder;
  const auto path = folder.file("state/forge/chat_history");
  CHECK(ChatHistory(path).load().empty());
  ChatHistory first(path), second(path);
  first.append("one");
  second.append("two\nlines\tand \x1b[2J");
  first.append("three");
  first.append("three");
  CHECK(ChatHistory(path).load() == Entries{"one", "two lines and  [2J", "three"});
  CHECK(mode_of(path) == 0600);
  CHECK(mode_of(path.parent_path()) == 0700);
  ::chmod(path.c_str(), 0644);
  first.append("four");
  CHECK(mode_of(path) == 0600);
}

TEST_CASE("a long history is shortened to its newest entries") {
  const tests::TempDir folder;
  const auto write = [&](std::size_t count) {
    std::string text = "\n\n";  // empty lines are not entries
    for (std::size_t i = 0; i < count; ++i) text += std::to_string(i) + "\n";
    return folder.write("history", text + "last, without a newline");
  };
  constexpr auto kMax = ChatHistory::kEntriesMax;
  auto path = write(kMax + 5);
  auto size = std::filesystem::file_size(path);
  auto loaded = ChatHistory(path).load();
  CHECK(loaded.size() == kMax);
  CHECK(loaded.front() == "6");
  CHECK(loaded.back() == "last, without a newline");
  CHECK(std::filesystem::file_size(path) == size);
  path = write(2 * kMax);
  size = std::filesystem::file_size(path);
  loaded = ChatHistory(path).load();
  CHECK(loaded.size() == kMax);
  CHECK(ChatHistory(path).load() == loaded);
  CHECK(std::filesystem::file_size(path) < size);
  CHECK(mode_of(path) == 0600);
}

TEST_CASE("a history that is not a regular file keeps its mode, and is not read") {  // e.g. a link to /dev/null
  const tests::TempDir folder;
  const auto pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(::chmod(pipe.c_str(), 0640) == 0);
  ChatHistory history(pipe);
  CHECK(history.load().empty());
  CHECK(tests::code_of([&] { history.append("nobody reads"); }) == ErrorCode::kIo);
  const UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(reader);
  history.append("one");
  char text[8]{};
  CHECK(::read(reader.get(), text, sizeof text) == 4);
  CHECK(std::string_view(text) == "one\n");
  CHECK(mode_of(pipe) == 0640);
}

TEST_CASE("a history behind a symbolic link is shortened in place") {
  const tests::TempDir folder;
  std::string text;
  for (std::size_t i = 0; i < 3 * ChatHistory::kEntriesMax; ++i) text += std::to_string(i) + "\n";
  const auto kept = folder.write("kept", text);
  const auto link = folder.file("link");
  std::filesystem::create_symlink(kept, link);
  CHECK(ChatHistory(link).load().size() == ChatHistory::kEntriesMax);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(std::filesystem::file_size(kept) < text.size());
  CHECK(mode_of(kept) == 0600);
}

TEST_CASE("a history that cannot be read or written gives a one-line error") {
  const tests::TempDir folder;
  const auto in_the_way = folder.write("file", "x");
  ChatHistory below_a_file(in_the_way / "history");
  CHECK(tests::code_of([&] { below_a_file.append("x"); }) == ErrorCode::kIo);
  ChatHistory a_folder(folder.path());
  CHECK(tests::code_of([&] { (void)a_folder.load(); }) == ErrorCode::kIo);
  CHECK(tests::code_of([&] { a_folder.append("x"); }) == ErrorCode::kIo);
}

}  // namespace forge::tools
