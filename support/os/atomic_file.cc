#include "support/os/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "support/error.h"
#include "support/os/random.h"

namespace forge {
namespace {

Error io_error(const std::filesystem::path& path, int number) {
  return Error(ErrorCode::kIo, "cannot write " + printable(path.native(), 200), std::strerror(number),
               "choose a directory that exists, is writable and has room");
}

/// True if both paths lead to one file. equivalent() sees through links but needs both files to exist; comparing the
/// canonical paths also covers files that do not exist yet.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored) ||
         std::filesystem::weakly_canonical(a, ignored) == std::filesystem::weakly_canonical(b, ignored);
}

}  // namespace

void check_output_path(const std::filesystem::path& target, std::initializer_list<std::filesystem::path> others) {
  for (const auto& other : others)
    if (!other.empty() && same_file(target, other))
      throw Error(ErrorCode::kUsage, "cannot write " + printable(target.native(), 200),
                  "the same command reads it, or writes something else to it", "name another file");
  struct stat status{};
  if (::stat(target.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode))
      throw Error(ErrorCode::kUsage, "cannot write " + printable(target.native(), 200),
                  S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a regular file", "name a file");
    return;
  }
  const auto folder = target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  if (::access(folder.c_str(), W_OK | X_OK) != 0) throw io_error(target, errno);
}

AtomicFile::AtomicFile(std::filesystem::path target, unsigned mode) : target_(std::move(target)) {
  check_output_path(target_);
  // The random part keeps two processes that write the same target apart; O_EXCL and O_NOFOLLOW refuse a file or link
  // that another process placed there.
  temporary_ = target_.parent_path() / fmt::format(".{}.{:016x}.tmp", target_.filename().native(), random_number());
  fd_ = UniqueFd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd_) throw io_error(target_, errno);
  pending_ = true;
}

AtomicFile::~AtomicFile() {
  if (pending_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (const int failed = write_all(fd_.get(), bytes); failed != 0) throw io_error(target_, failed);
}

void AtomicFile::commit() {
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw io_error(target_, errno);
  pending_ = false;
}

void write_file(const std::filesystem::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace forge
