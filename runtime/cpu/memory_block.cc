#include "runtime/cpu/memory_block.h"

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

MemoryBlock::~MemoryBlock() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace forge::runtime
