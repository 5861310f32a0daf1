#pragma once
// A write(2) that continues after short writes and signals.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>

namespace forge {

/// Writes all of `bytes` to `fd`. Returns 0, or the errno of the write that failed.
[[nodiscard]] inline int write_all(int fd, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    // Linux writes at most 2^31 - 4096 bytes a call, so larger buffers are written in pieces of 1 GiB.
    const ssize_t n = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 1U << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace forge
