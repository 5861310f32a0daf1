#pragma once
// Random native blocks of every type, and hashes of what the PyPI package gguf dequantises them to (make_golden.py).

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "kernels/quant/dtype.h"

namespace forge::test {

struct Golden {
  DType type;
  std::vector<std::size_t> exponents;  ///< byte offsets in a block that hold the sign and exponent of an f16
  std::uint64_t hash;
  std::uint32_t first[4];
  std::vector<std::size_t> powers{};  ///< byte offsets in a block that hold a power of two (E8M0)
};
inline const std::vector<Golden>& goldens() {
  static const std::vector<Golden> rows{
#include "tests/kernels/golden.inc"
  };
  return rows;
}

inline const Golden& golden_of(DType type) {
  for (const auto& golden : goldens())
    if (golden.type == type) return golden;
  throw std::invalid_argument("a type without golden vectors");
}

/// Sets the scales of whole blocks to 2^-7 .. 2^-4, so that results stay finite, or powers of two to 2^-15 .. 1.
inline void tame_scales(const Golden& golden, std::vector<std::byte>& blocks) {
  const std::size_t size = dtype_info(golden.type).block_bytes;
  for (std::size_t at = 0; at < blocks.size(); at += size) {
    for (const std::size_t exponent : golden.exponents)
      blocks[at + exponent] = (blocks[at + exponent] & std::byte{0x8f}) | std::byte{0x20};
    for (const std::size_t power : golden.powers)
      blocks[at + power] = (blocks[at + power] & std::byte{0x0f}) | std::byte{0x70};
  }
}

/// `blocks` blocks of a type from a random byte stream (splitmix64), with scales of 2^-7 .. 2^-4.
inline std::vector<std::byte> random_blocks(const Golden& golden, std::uint64_t seed, std::size_t blocks) {
  std::vector<std::byte> out(blocks * dtype_info(golden.type).block_bytes);
  for (auto& byte : out) {
    seed += 0x9E3779B97F4A7C15u;
    std::uint64_t z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    byte = static_cast<std::byte>(z ^ z >> 31);
  }
  tame_scales(golden, out);
  return out;
}

/// The block description for kernel tests: it also limits MXFP4's exponent byte, which the golden vectors leave random.
inline Golden weight_blocks(DType type) {
  Golden golden = golden_of(type);
  if (type == DType::kMXFP4) golden.powers = {0};
  return golden;
}

}  // namespace forge::test
