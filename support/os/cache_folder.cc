#include "support/os/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace forge {

namespace fs = std::filesystem;

std::string prepare_cache_folder(const fs::path& folder) {
  const auto reason = [](int number) { return std::generic_category().message(number); };
  std::error_code failed;
  fs::create_directories(folder.parent_path(), failed);
  // Not left to create_directories, which would give the directory the default mode.
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return reason(errno);
  struct stat status{};
  if (::stat(folder.c_str(), &status) != 0) return reason(errno);
  if (!S_ISDIR(status.st_mode)) return reason(ENOTDIR);
  // A directory of root is accepted (a system-wide cache), and root accepts a directory of anyone.
  const uid_t self = ::geteuid();
  if (self != 0 && status.st_uid != self && status.st_uid != 0) return "it belongs to another user";
  if ((status.st_mode & S_IWOTH) != 0) return "every user can write into it (chmod it to 0700)";
  return {};
}

std::string prepare_cache_subfolder(const fs::path& folder) {
  auto why = prepare_cache_folder(folder.parent_path());
  return why.empty() ? prepare_cache_folder(folder) : why;
}

bool is_cache_key(std::string_view key) {
  return !key.empty() && key.size() <= 128 && std::ranges::all_of(key, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  });
}

namespace {

/// The regular files of the directory whose name `accept` returns true for. Files that vanish meanwhile are skipped.
template <class Accept>
std::vector<CacheFile> list(const fs::path& folder, Accept accept) {
  std::vector<CacheFile> files;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    struct stat status{};
    if (accept(std::string_view(it->path().filename().native())) && ::lstat(it->path().c_str(), &status) == 0 &&
        S_ISREG(status.st_mode))
      files.push_back({it->path(), static_cast<std::uint64_t>(status.st_size), status.st_mtim});
  }
  return files;
}

}  // namespace

std::vector<CacheFile> cache_files(const fs::path& folder, std::string_view suffix) {
  return list(folder, [&](std::string_view name) {
    return name.ends_with(suffix) && is_cache_key(name.substr(0, name.size() - suffix.size()));
  });
}

std::vector<CacheFile> cache_temporaries(const fs::path& folder, std::string_view suffix) {
  return list(folder, [&](std::string_view name) {
    if (!name.starts_with('.') || !name.ends_with(".tmp")) return false;
    name.remove_prefix(1);
    const auto dot = std::min(name.find('.'), name.size());
    return is_cache_key(name.substr(0, dot)) && name.substr(dot).starts_with(std::string(suffix) + ".");
  });
}

void remove_cache_temporaries(const fs::path& folder, std::string_view suffix, std::string_view key) {
  constexpr std::time_t kStaleSeconds = 3600;  // far longer than writing an entry takes (seconds)
  const std::string own = "." + std::string(key) + std::string(suffix) + ".";
  const std::time_t now = std::time(nullptr);
  for (const auto& file : cache_temporaries(folder, suffix))
    if (file.path.filename().native().starts_with(own) || now - file.used.tv_sec > kStaleSeconds)
      ::unlink(file.path.c_str());
}

void evict_cache_files(std::vector<CacheFile> files, std::uint64_t bytes_max, const fs::path& kept) {
  std::uint64_t bytes = 0;
  for (const auto& file : files) bytes += file.bytes;
  std::ranges::sort(files, {}, [](const CacheFile& file) { return std::pair(file.used.tv_sec, file.used.tv_nsec); });
  for (const auto& file : files) {
    if (bytes <= bytes_max) return;
    if (file.path == kept) continue;
    ::unlink(file.path.c_str());
    bytes -= file.bytes;
  }
}

void touch_cache_file(const fs::path& path) noexcept {
  (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

}  // namespace forge
