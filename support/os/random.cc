#include "support/os/random.h"

#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

namespace forge {

std::uint64_t random_number() noexcept {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number) return number;
  // Fallback early after boot: the counter keeps calls within one clock tick apart.
  static std::atomic<std::uint64_t> serial{0};
  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return (now << 20) ^ (static_cast<std::uint64_t>(::getpid()) << 40) ^ serial++;
}

}  // namespace forge
