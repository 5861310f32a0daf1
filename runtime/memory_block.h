#pragma once
// One block of page-aligned memory from the operating system: zeroed and committed as it is touched, or a file's.

#include <cstddef>
#include <string>
#include <utility>

namespace forge::runtime {

class MemoryBlock {
 public:
  MemoryBlock() = default;
  /// Takes `bytes` (0: nothing). Throws Error(kMemory) naming `what` and the size. `huge_pages`: ask for them; a
  /// refusal only costs speed.
  MemoryBlock(std::size_t bytes, const std::string& what, bool huge_pages);
  /// Bytes of a file from `offset` (a multiple of the page size) on, read-only; an empty block and errno when that
  /// fails.
  static MemoryBlock map(int fd, std::size_t offset, std::size_t bytes) noexcept;
  MemoryBlock(MemoryBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryBlock();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace forge::runtime
