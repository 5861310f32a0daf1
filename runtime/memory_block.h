#pragma once
// A block of page-aligned memory mapped with mmap: either anonymous memory (zeroed, committed on first touch) or a
// read-only view of a file. Used for the CPU executor's weights, arena and KV pool and for the cache of repacked
// weights.

#include <cstddef>
#include <string>
#include <utility>

namespace forge::runtime {

/// Owner of one mapping; unmaps it on destruction.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  /// Maps `bytes` of anonymous memory (0: none). `what` names it in errors. `huge_pages`: ask for transparent huge
  /// pages; if the kernel refuses, only speed suffers. Throws Error(kMemory).
  MemoryBlock(std::size_t bytes, const std::string& what, bool huge_pages);
  /// Maps `bytes` of a file from `offset` (a multiple of the page size) read-only. Returns an empty block and leaves
  /// errno set on failure.
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
