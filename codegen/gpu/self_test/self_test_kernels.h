#pragma once
// The groups of self-test kernels, and helpers for their inputs and expected results. Private to codegen/gpu/self_test.

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "codegen/gpu/self_test/self_test.h"
#include "codegen/gpu/source/kernel_text.h"

namespace forge::codegen {

/// Reproducible pseudo-random words (SplitMix64: Steele, Lea, Flood 2014).
class TestWords {
 public:
  explicit TestWords(std::uint64_t seed) : state_(seed) {}
  std::uint32_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 16);
  }
  /// A float of either sign with a magnitude in [low, high), in steps of (high - low) / 65536.
  float number(float low, float high) {
    const float magnitude = low + static_cast<float>(next() % 65536) / 65536 * (high - low);
    return (next() & 1) != 0 ? -magnitude : magnitude;
  }

 private:
  std::uint64_t state_;
};

inline std::uint32_t word_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
inline float number_of(std::uint32_t word) {
  return std::bit_cast<float>(word);
}

/// A kernel from `text`, whose entry is named "self_test_NAME"; input and sections are left empty.
[[nodiscard]] SelfTestKernel self_test_kernel(const GpuTarget& target, std::string name, KernelText text);

[[nodiscard]] SelfTestKernel self_test_lanes(const GpuTarget& target);
[[nodiscard]] SelfTestKernel self_test_numbers(const GpuTarget& target);
[[nodiscard]] SelfTestKernel self_test_memory(const GpuTarget& target);
[[nodiscard]] SelfTestKernel self_test_blocks(const GpuTarget& target);
[[nodiscard]] SelfTestKernel self_test_chain(const GpuTarget& target);
[[nodiscard]] SelfTestKernel self_test_tiles(const GpuTarget& target);
/// Several kernels, each of which repacks a few weight types.
[[nodiscard]] std::vector<SelfTestKernel> self_test_repack(const GpuTarget& target);

}  // namespace forge::codegen
