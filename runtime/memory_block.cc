#include "runtime/memory_block.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "support/error.h"

namespace forge::runtime {

MemoryBlock::MemoryBlock(std::size_t bytes, const std::string& what, bool huge_pages) : bytes_(bytes) {
  if (bytes == 0) return;
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    throw Error(ErrorCode::kMemory, fmt::format("no memory for {}", what),
                fmt::format("{:.1f} MiB: {}", static_cast<double>(bytes) / (1 << 20), std::strerror(errno)),
                "use a smaller context (-c), a smaller batch or a smaller model");
  data_ = static_cast<std::byte*>(address);
  if (huge_pages) (void)madvise(address, bytes, MADV_HUGEPAGE);
}

MemoryBlock MemoryBlock::map(int fd, std::size_t offset, std::size_t bytes) noexcept {
  MemoryBlock block;
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return block;
  block.data_ = static_cast<std::byte*>(address);
  block.bytes_ = bytes;
  (void)madvise(address, bytes, MADV_HUGEPAGE);  // where the kernel has huge pages for files
  (void)madvise(address, bytes, MADV_WILLNEED);
  return block;
}

MemoryBlock::~MemoryBlock() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace forge::runtime
