#pragma once
// One block of page-aligned, zeroed memory from the operating system, committed as it is touched.

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
