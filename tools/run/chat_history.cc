#include "tools/run/chat_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <system_error>

#include "support/error.h"
#include "support/os/atomic_file.h"
#include "support/os/console.h"
#include "support/os/unique_fd.h"

namespace forge::tools {
namespace {

constexpr std::size_t kBytesMax = std::size_t{64} << 20;

Error failed(std::string_view doing, const std::filesystem::path& path, int error) {
  return Error(ErrorCode::kIo, fmt::format("cannot {} {}", doing, printable(path.native(), 200)), std::strerror(error),
               "the chat continues without a history");
}

}  // namespace

std::optional<std::filesystem::path> ChatHistory::default_path() {
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    const std::filesystem::path path = value == nullptr ? "" : value;
    return path.is_absolute() ? std::optional(path) : std::nullopt;
  };
  if (const auto state = folder("XDG_STATE_HOME")) return *state / "forge" / "chat_history";
  if (const auto home = folder("HOME")) return *home / ".local" / "state" / "forge" / "chat_history";
  return std::nullopt;
}

std::vector<std::string> ChatHistory::load() {
  std::error_code ignored;
  if (!path_ || !std::filesystem::exists(*path_, ignored) || std::filesystem::is_other(*path_, ignored)) return {};
  std::vector<std::string> entries;
  const auto text = read_text(path_->native(), kBytesMax);
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    if (end > at) entries.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (entries.size() <= kEntriesMax) return entries;
  const bool cut = entries.size() >= 2 * kEntriesMax;
  entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(kEntriesMax));
  if (cut) {
    std::string kept;
    for (const auto& entry : entries) kept += entry + '\n';
    AtomicFile file(std::filesystem::weakly_canonical(*path_),
                    S_IRUSR | S_IWUSR);  // a link stays, and its target is replaced
    file.write(std::as_bytes(std::span(kept)));
    file.commit();
  }
  return entries;
}

void ChatHistory::append(std::string_view entry) {
  if (!path_) return;
  std::string line(entry);
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  line += '\n';
  if (line == last_) return;
  last_ = line;
  std::error_code error;
  const auto folder = path_->parent_path();
  if (std::filesystem::create_directories(folder, error)) ::chmod(folder.c_str(), S_IRWXU);
  if (error) throw failed("create", folder, error.value());
  const UniqueFd file(
      ::open(path_->c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0 ||
      (S_ISREG(status.st_mode) && ::fchmod(file.get(), S_IRUSR | S_IWUSR) != 0))
    throw failed("write", *path_, errno);
  if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw failed("write", *path_, errno);
}

}  // namespace forge::tools
