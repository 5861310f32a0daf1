#pragma once
// splitmix64 (source: Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). C++ and Python
// (splitmix.py) generate the same test cases from the same seed.

#include <cstdint>

namespace forge::tests {

class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}

  /// Uniform in [0, n); n >= 1.
  std::uint64_t below(std::uint64_t n) {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return (z ^ z >> 31) % n;
  }

 private:
  std::uint64_t state_;
};

}  // namespace forge::tests
