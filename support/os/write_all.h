#pragma once
// Writing all of some bytes to a descriptor.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>

namespace forge {

/// Writes all of `bytes` to `fd`; 0, or the errno that stopped it.
[[nodiscard]] inline int write_all(int fd, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 1U << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace forge
