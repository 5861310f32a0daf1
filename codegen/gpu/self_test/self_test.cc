#include "codegen/gpu/self_test/self_test.h"

#include <fmt/format.h>

#include <cmath>

#include "codegen/gpu/self_test/self_test_kernels.h"
#include "kernels/quant/f16.h"

namespace forge::codegen {
namespace {

/// The same bits, or both NaN (the payload of a NaN is not specified).
bool is_same(float got, float expected) {
  return word_of(got) == word_of(expected) || (std::isnan(got) && std::isnan(expected));
}
bool is_near(float got, float expected, const SelfTestSection& section) {
  if (!std::isfinite(expected) || !std::isfinite(got)) return is_same(got, expected);
  return std::fabs(got - expected) <= section.relative * std::fabs(expected) + section.absolute;
}
bool is_same_half(std::uint32_t got, std::uint32_t expected) {
  return is_same(quant::f32_of_f16(static_cast<std::uint16_t>(got)),
                 quant::f32_of_f16(static_cast<std::uint16_t>(expected)));
}
bool is_same_bf16(std::uint32_t got, std::uint32_t expected) {
  return is_same(number_of(got << 16), number_of(expected << 16));
}

bool matches(std::uint32_t got, std::uint32_t expected, const SelfTestSection& section) {
  switch (section.match) {
    case SelfTestMatch::kWords:
      return got == expected;
    case SelfTestMatch::kFloats:
      return is_same(number_of(got), number_of(expected));
    case SelfTestMatch::kHalves:
      return got >> 16 == 0 && is_same_half(got, expected);
    case SelfTestMatch::kHalfPairs:
      return is_same_half(got & 0xffffU, expected & 0xffffU) && is_same_half(got >> 16, expected >> 16);
    case SelfTestMatch::kBf16Pairs:
      return is_same_bf16(got & 0xffffU, expected & 0xffffU) && is_same_bf16(got >> 16, expected >> 16);
    case SelfTestMatch::kNear:
      return is_near(number_of(got), number_of(expected), section);
  }
  return false;
}

}  // namespace

SelfTestKernel self_test_kernel(const GpuTarget& target, std::string name, KernelText text) {
  SelfTestKernel kernel;
  kernel.source = kernel_source(target, "self_test_" + name, text);
  kernel.name = std::move(name);
  kernel.blocks = static_cast<std::uint32_t>(text.blocks);
  kernel.threads = static_cast<std::uint32_t>(text.threads);
  return kernel;
}

std::vector<SelfTestKernel> self_test_kernels(const GpuTarget& target) {
  std::vector<SelfTestKernel> all;
  all.push_back(self_test_lanes(target));
  all.push_back(self_test_numbers(target));
  all.push_back(self_test_memory(target));
  all.push_back(self_test_blocks(target));
  all.push_back(self_test_chain(target));
  if (target.matrix != MatrixKind::kNone) all.push_back(self_test_tiles(target));
  for (auto& kernel : self_test_repack(target)) all.push_back(std::move(kernel));
  return all;
}

std::string self_test_mismatch(const SelfTestSection& section, std::span<const std::uint32_t> got) {
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = section.expected.size(); i-- > 0;)
    if (!matches(got[i], section.expected[i], section)) first = i, ++wrong;
  if (wrong == 0) return {};
  return fmt::format("{} of {} words are wrong; word {} is {:#010x}, not {:#010x}", wrong, section.expected.size(),
                     first, got[first], section.expected[first]);
}

}  // namespace forge::codegen
