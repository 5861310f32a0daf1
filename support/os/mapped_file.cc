#include "support/os/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "support/error.h"

namespace forge {
namespace {

/// Closes a file descriptor when the scope is left, unless open() has moved it into the MappedFile.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void throw_io_error(const std::filesystem::path& path, std::string why, std::string fix) {
  throw Error(ErrorCode::kIo, fmt::format("cannot read {}", printable(path.native(), 200)), std::move(why),
              std::move(fix));
}

[[noreturn]] void throw_errno(const std::filesystem::path& path, int number) {
  const char* fix = "check the path and the disk";
  if (number == ENOENT || number == ENOTDIR) fix = "check the path";
  if (number == EACCES || number == EPERM) fix = "give yourself read permission (chmod +r)";
  if (number == ENOMEM) fix = "raise the address-space limit (ulimit -v)";
  throw_io_error(path, std::generic_category().message(number), fix);
}

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO without a writer would block forever. It has no effect on regular files.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) throw_errno(path, errno);
  struct stat status{};
  if (::fstat(file.fd, &status) != 0) throw_errno(path, errno);
  if (S_ISDIR(status.st_mode)) throw_io_error(path, "it is a directory", "name the file inside it");
  if (!S_ISREG(status.st_mode)) throw_io_error(path, "it is not a regular file", "save it to disk first");
  if (status.st_size == 0) throw_io_error(path, "the file is empty", "download it again");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) throw_errno(path, errno);
  MappedFile mapped;
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = size;
  mapped.fd_ = std::exchange(file.fd, -1);
  mapped.path_ = path;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

std::string MappedFile::stamp() const {
  struct stat status{};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0) return {};
  return fmt::format("{} {} {}.{:09} {}.{:09}", status.st_size, status.st_ino, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
}

void MappedFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset)
    throw_io_error(path_, fmt::format("{} bytes at offset {} lie beyond its {} bytes", out.size(), offset, size_),
                   "check the file");
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path_, errno);
    if (n == 0) throw_io_error(path_, "it was truncated while it was being read", "fetch it again");
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

void MappedFile::prefetch(std::size_t offset, std::size_t bytes) const noexcept {
  if (data_ == nullptr || offset >= size_) return;
  // madvise(2) requires a page-aligned start.
  const std::size_t begin = offset - offset % static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t end = offset + std::min(bytes, size_ - offset);
  (void)::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_WILLNEED);
}

}  // namespace forge
