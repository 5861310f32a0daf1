#pragma once
// The GPU self-test, as data: kernels that use every primitive of the device sources (kernels/gpu/self_test/), compiled
// like the kernels of plans, and the results that each must leave in memory, computed by scalar code. Code with access
// to a device runs them and compares (session/self_test/self_test.h). All weight types that have GPU kernels are
// covered automatically.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"

namespace forge::codegen {

/// How a result word is compared with the expected one.
enum class SelfTestMatch : std::uint8_t {
  kWords,      ///< the same bits
  kFloats,     ///< f32: the same bits, or both NaN
  kHalves,     ///< f16 in the low 16 bits: the same bits, or both NaN
  kHalfPairs,  ///< two f16
  kBf16Pairs,  ///< two bf16
  kNear,       ///< f32, |got - expected| <= relative * |expected| + absolute; NaN and infinities as kFloats
};

/// The expected results of one primitive.
struct SelfTestSection {
  std::string name;       ///< "shuffle_xor<16>"
  std::size_t first = 0;  ///< index of the first word in the kernel's `out`, or in its `host` memory
  std::vector<std::uint32_t> expected;
  SelfTestMatch match = SelfTestMatch::kWords;
  float relative = 0, absolute = 0;
  bool in_host_memory = false;
};

/// One kernel. It is launched `launches` times in a row, and gets the number of the launch.
struct SelfTestKernel {
  std::string name;  ///< "lanes"
  KernelSource source;
  std::uint32_t blocks = 0, threads = 0;
  int launches = 1;
  bool overlap = false;  ///< a launch may start before the previous one has ended
  std::vector<std::uint32_t> input;
  std::size_t out_words = 0, work_words = 0, host_words = 0;  ///< sizes of the buffers (SelfTestArgs)
  std::vector<SelfTestSection> sections;
};

/// All kernels for a target. Expected results depend on the target's wave size; kernels for matrix tiles are only there
/// if the target has them.
[[nodiscard]] std::vector<SelfTestKernel> self_test_kernels(const GpuTarget& target);

/// A message about the wrong words: "1 of 256 words are wrong; word 3 is 0x00000001, not 0x00000002"; empty if all are
/// right. got: as many words as the section expects.
[[nodiscard]] std::string self_test_mismatch(const SelfTestSection& section, std::span<const std::uint32_t> got);

}  // namespace forge::codegen
