#pragma once
// The self-test of a card, as data: kernels of every primitive that the device sources have (kernels/gpu/self_test*.h),
// compiled as plans' kernels are, and what each must leave in memory, computed by plain scalar code. Whoever has a
// device runs them and compares (session/self_test/self_test.h). A weight type that gets kernels is covered without a
// word here.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"

namespace forge::codegen {

/// How words are compared with what they must be.
enum class SelfTestMatch : std::uint8_t {
  kWords,      ///< the same
  kFloats,     ///< f32: the same bits, or both NaN
  kHalves,     ///< f16 in the low 16 bits: the same bits, or both NaN
  kHalfPairs,  ///< two f16
  kBf16Pairs,  ///< two bf16
  kNear,       ///< f32 within `relative` of the right one and `absolute` beside; NaN and infinities as kFloats
};

/// What one primitive leaves.
struct SelfTestSection {
  std::string name;       ///< "shuffle_xor<16>"
  std::size_t first = 0;  ///< word of the kernel's `out`, or of its `host` memory
  std::vector<std::uint32_t> expected;
  SelfTestMatch match = SelfTestMatch::kWords;
  float relative = 0, absolute = 0;
  bool in_host_memory = false;
};

/// One kernel, launched `launches` times one behind the other with the number of the launch.
struct SelfTestKernel {
  std::string name;  ///< "lanes"
  KernelSource source;
  std::uint32_t blocks = 0, threads = 0;
  int launches = 1;
  bool overlap = false;  ///< launches may begin before the one before has ended
  std::vector<std::uint32_t> input;
  std::size_t out_words = 0, work_words = 0, host_words = 0;
  std::vector<SelfTestSection> sections;
};

/// All of a target's. Sums, tiles and repacking are the target's own.
[[nodiscard]] std::vector<SelfTestKernel> self_test_kernels(const GpuTarget& target);

/// The first word that is wrong, for people: "word 3 of 256 is 0x00000001, not 0x00000002"; empty: none is.
/// got: as many words as the section expects.
[[nodiscard]] std::string self_test_mismatch(const SelfTestSection& section, std::span<const std::uint32_t> got);

}  // namespace forge::codegen
