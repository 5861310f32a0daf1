// Replaces the global operator new and delete of a test program so that each allocation is counted. The functions must
// be real calls: inlined ones would miss allocations of code compiled elsewhere (see meson.build).
#include "tests/runtime/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> counted{0};

void* take(std::size_t bytes, std::size_t align) {
  counted.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::aligned_alloc(align, (bytes + align) / align * align)) return memory;
  throw std::bad_alloc();
}

}  // namespace

std::uint64_t forge::test::allocations() {
  return counted.load();
}

void* operator new(std::size_t bytes) {
  return take(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  counted.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t align) {
  return take(bytes, static_cast<std::size_t>(align));
}
void* operator new(std::size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  counted.fetch_add(1, std::memory_order_relaxed);
  const auto boundary = static_cast<std::size_t>(align);
  return std::aligned_alloc(boundary, (bytes + boundary) / boundary * boundary);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
