// A preload library that counts the live heap of a program. $FORGE_HEAP_COUNT names a file whose first 16 bytes always
// hold the live bytes and blocks, as two int64. Allocations are forwarded to the program's own heap. Resident memory
// grows for a long time for the first touch of pages too, so it shows a leak only after very many requests; this count
// shows it at once.

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

struct Counts {
  std::atomic<std::int64_t> bytes, blocks;
};

Counts* open_counts() {
  const char* path = std::getenv("FORGE_HEAP_COUNT");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(Counts)) != 0) std::abort();
  void* memory = ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<Counts*>(memory);
}

/// The functions of the program's own heap.
struct Heap {
  template <class Function>
  static Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
  }
  decltype(::malloc)* malloc = next<decltype(::malloc)>("malloc");
  decltype(::calloc)* calloc = next<decltype(::calloc)>("calloc");
  decltype(::realloc)* realloc = next<decltype(::realloc)>("realloc");
  decltype(::free)* free = next<decltype(::free)>("free");
  decltype(::aligned_alloc)* aligned_alloc = next<decltype(::aligned_alloc)>("aligned_alloc");
  decltype(::malloc_usable_size)* usable = next<decltype(::malloc_usable_size)>("malloc_usable_size");
  Counts* counts = open_counts();

  void* took(void* memory) const {
    if (memory != nullptr) count(memory, 1);
    return memory;
  }
  void count(void* memory, std::int64_t sign) const {
    counts->bytes += sign * static_cast<std::int64_t>(usable(memory));
    counts->blocks += sign;
  }
};

/// Created by the first allocation. dlsym allocates no memory when it finds the symbol.
const Heap& heap() {
  static const Heap heap;
  return heap;
}

void* take(std::size_t bytes, std::size_t align = 0) {
  void* memory = align == 0 ? ::malloc(bytes) : ::aligned_alloc(align, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

extern "C" {
void* malloc(std::size_t bytes) {
  return heap().took(heap().malloc(bytes));
}
void* calloc(std::size_t count, std::size_t bytes) {
  return heap().took(heap().calloc(count, bytes));
}
void* realloc(void* memory, std::size_t bytes) {
  if (memory != nullptr) heap().count(memory, -1);
  void* moved = heap().realloc(memory, bytes);
  if (moved == nullptr && memory != nullptr && bytes > 0) heap().count(memory, 1);  // the old block still exists
  return heap().took(moved);
}
void free(void* memory) {
  if (memory == nullptr) return;
  heap().count(memory, -1);
  heap().free(memory);
}
void* aligned_alloc(std::size_t align, std::size_t bytes) {
  return heap().took(heap().aligned_alloc(align, (bytes + align - 1) / align * align));
}
void* memalign(std::size_t align, std::size_t bytes) {
  return aligned_alloc(align, bytes);
}
int posix_memalign(void** to, std::size_t align, std::size_t bytes) {
  *to = aligned_alloc(align, bytes);
  return *to == nullptr ? ENOMEM : 0;
}
}

void* operator new(std::size_t bytes) {
  return take(bytes);
}
void* operator new[](std::size_t bytes) {
  return take(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return ::malloc(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return ::malloc(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t align) {
  return take(bytes, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t bytes, std::align_val_t align) {
  return take(bytes, static_cast<std::size_t>(align));
}
void operator delete(void* memory) noexcept {
  ::free(memory);
}
void operator delete[](void* memory) noexcept {
  ::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  ::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  ::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  ::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  ::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  ::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  ::free(memory);
}
