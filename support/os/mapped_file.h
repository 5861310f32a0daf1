#pragma once
// A file mapped read-only into memory: what model files are read through. Nothing is copied, pages come in as they
// are touched, and `advise` tells the kernel what is coming.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace forge {

class MappedFile {
 public:
  /// Maps the whole regular file at `path`, read-only and private. The bytes live as long as this object and never
  /// move, also when the object is moved. Errors (kIo): missing, a directory or another non-file, empty, unreadable.
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

  /// Size, number and times of the file: another text when its bytes may be others than before. Empty where the system
  /// does not say.
  [[nodiscard]] std::string stamp() const;

  /// Copies [offset, offset + out.size()) by a read of the file, which touches no mapped page: for data that goes
  /// elsewhere at once. Errors (kIo): outside the file, cut meanwhile, unreadable.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  /// Says that `bytes` bytes from `offset` are read soon; what lies outside the file is cut off. Never fails: a refused
  /// hint costs only speed.
  void prefetch(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int fd_ = -1;
  std::filesystem::path path_;
};

}  // namespace forge
