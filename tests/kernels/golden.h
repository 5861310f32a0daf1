#pragma once
// Random native blocks of every type, and what the PyPI package gguf says that they mean (make_golden.py).

#include <cstdint>
#include <vector>

#include "kernels/quant/dtype.h"

namespace forge::test {

struct Golden {
  DType type;
  std::vector<std::size_t> exponents;  ///< bytes of a block with the sign and exponent of an f16
  std::uint64_t hash;
  std::uint32_t first[4];
};
inline const std::vector<Golden>& goldens() {
  static const std::vector<Golden> rows{
#include "tests/kernels/golden.inc"
  };
  return rows;
}

/// `blocks` blocks of a type as a stream of random bytes (splitmix64), scales made 2^-7 .. 2^-4.
inline std::vector<std::byte> random_blocks(const Golden& golden, std::uint64_t seed, std::size_t blocks) {
  const std::size_t size = dtype_info(golden.type).block_bytes;
  std::vector<std::byte> out(blocks * size);
  for (auto& byte : out) {
    seed += 0x9E3779B97F4A7C15u;
    std::uint64_t z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    byte = static_cast<std::byte>(z ^ z >> 31);
  }
  for (std::size_t at = 0; at < out.size(); at += size)
    for (const std::size_t exponent : golden.exponents)
      out[at + exponent] = (out[at + exponent] & std::byte{0x8f}) | std::byte{0x20};
  return out;
}

}  // namespace forge::test
