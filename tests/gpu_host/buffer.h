#pragma once
// Device memory for kernel tests: placed between two guards and filled with NaN.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace forge::gpu_host {

/// `count` elements at an address that is a multiple of 256. check() fails the test if a guard was overwritten. Fresh
/// bytes are 0xff: NaN as f32 and f16, -1 as i32. The allocation ends with the rear guard, so AddressSanitizer sees
/// accesses beyond it.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count)
      : count_(count), memory_(static_cast<std::byte*>(::operator new(count * sizeof(T) + 2 * kGuard, kAlignment))) {
    std::memset(memory_.get(), 0xff, count * sizeof(T) + 2 * kGuard);
  }
  explicit Buffer(std::span<const T> values) : Buffer(values.size()) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size_bytes());
  }
  static Buffer of(std::initializer_list<T> values) {
    return Buffer(std::span<const T>(values.begin(), values.size()));
  }

  T* data() { return reinterpret_cast<T*>(memory_.get() + kGuard); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.get() + kGuard); }
  [[nodiscard]] std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  [[nodiscard]] std::vector<T> values() const { return {data(), data() + count_}; }
  void fill(T value) { std::fill_n(data(), count_, value); }

  /// The first overwritten guard byte as text; empty if both guards are intact.
  [[nodiscard]] std::string damage() const {
    const std::byte* end = memory_.get() + kGuard + count_ * sizeof(T);
    for (std::size_t i = 1; i <= kGuard; ++i) {
      if (memory_[kGuard - i] != std::byte{0xff}) return "byte " + std::to_string(i) + " before the buffer was written";
      if (end[i - 1] != std::byte{0xff}) return "byte " + std::to_string(i) + " behind the buffer was written";
    }
    return {};
  }
  void check() const {
    if (const std::string found = damage(); !found.empty()) FAIL(found);
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::align_val_t kAlignment{256};
  struct Release {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::size_t count_;
  std::unique_ptr<std::byte[], Release> memory_;
};

}  // namespace forge::gpu_host
