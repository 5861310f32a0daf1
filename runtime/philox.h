#pragma once
// Philox4x32-10, a counter-based random number generator. Number n of a seed is a pure function of (seed, n), so a
// request's draws do not depend on the batch, on preemption or on the machine, and a GPU kernel can produce the same
// numbers. Used by the host sampler; kernels/gpu/sampling.h has the device's version. Source: Salmon, Moraes, Dror,
// Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

#include <array>
#include <cstdint>

namespace forge::runtime {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// 128 random bits for one counter value under a key: ten rounds of multiply, swap and xor. Constants are the paper's.
[[nodiscard]] constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// Draw number `index` of `seed`: uniform in [0, 1), 53 bits (the mantissa of a double).
[[nodiscard]] constexpr double philox_uniform(std::uint64_t seed, std::uint64_t index) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const PhiloxBlock bits = philox4x32({low(index), low(index >> 32), 0, 0}, {low(seed), low(seed >> 32)});
  return static_cast<double>(((std::uint64_t{bits[0]} << 32) | bits[1]) >> 11) * 0x1p-53;
}

}  // namespace forge::runtime
