#pragma once
// Pools of random weights, from which the tensors of synthetic models are cut.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/quant/dtype.h"

namespace forge::session {

/// Receives the next bytes of a file.
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

/// Random weights of one type. A tensor is a stretch of the pool from a random block on, repeated from the pool's start
/// if it is longer, which is much faster than quantising every weight. For types that forge can quantise to, the
/// weights are nearly normal. For other types all codes and sub-block scales are random bits, and each block's scale is
/// chosen so that the weights have the same standard deviation.
class SyntheticPool {
 public:
  /// A pool of `elems` weights; nullopt for a type that weights cannot have.
  static std::optional<SyntheticPool> make(DType type, std::size_t elems);
  /// Writes one tensor of `bytes` bytes, a multiple of the block size.
  void write(std::uint64_t bytes, Random& random, const ByteSink& sink) const;

 private:
  std::vector<std::byte> bytes_;
  std::size_t block_bytes_ = 1;
};

}  // namespace forge::session
