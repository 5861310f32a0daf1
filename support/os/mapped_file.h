#pragma once
// A file mapped read-only into memory; the loader reads model files through it. Nothing is copied: pages are read from
// disk when they are first touched, and prefetch() asks the kernel to read them earlier.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace forge {

/// Owns the mapping and the open file. Reading from several threads at once is safe.
class MappedFile {
 public:
  /// Maps the whole regular file at `path`, read-only and private. The bytes stay at their address as long as the
  /// object lives, even when it is moved. Errors (kIo): the file is missing, empty, unreadable, or not a regular file.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Size, inode number and times of the file as text. The text changes when the contents may have changed, so caches
  /// use it to notice a replaced file. Empty if the system does not report them.
  [[nodiscard]] std::string stamp() const;

  /// Copies the bytes [offset, offset + out.size()) with pread(2), without touching mapped pages. For data that is
  /// copied to another place (a device) right away and need not stay in this process's memory. Errors (kIo): the range
  /// is outside the file, the file was truncated meanwhile, or it cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  /// Tells the kernel that `bytes` bytes from `offset` will be read soon; a range beyond the end of the file is cut.
  /// Never fails: a refused hint costs only speed.
  void prefetch(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int fd_ = -1;
  std::filesystem::path path_;
};

}  // namespace forge
