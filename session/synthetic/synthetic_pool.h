#pragma once
// Random weights of one type, of which synthetic models are cut.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/quant/dtype.h"

namespace forge::session {

/// Takes the next bytes of a file.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// SplitMix64 (source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_ = 1234;
};

/// Some weights of one type; tensors are cut out of them from random places on. Types that forge can write hold nearly
/// normal numbers; of the others all codes and small scales are random, and the blocks' own scales give the numbers the
/// same deviation.
class SyntheticPool {
 public:
  /// Nothing for a type that no weight has.
  static std::optional<SyntheticPool> make(DType type, std::size_t elems);
  /// `bytes` bytes, a multiple of a block's.
  void write(std::uint64_t bytes, Random& random, const ByteSink& sink) const;

 private:
  std::vector<std::byte> bytes_;
  std::size_t block_bytes_ = 1;
};

}  // namespace forge::session
