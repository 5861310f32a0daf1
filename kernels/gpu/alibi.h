#pragma once
// ALiBi (arXiv 2108.12409): a score loses a slope, which depends on the head, for each position between query and key.

#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// The largest power of two up to `count`.
FORGE_DEVICE constexpr int power_within(int count) {
  return count < 2 ? 1 : 2 * power_within(count / 2);
}

/// The slope of query head `head` of kHeads, in units of log2(e) a position. C has kHeads and kAlibi, the largest bias'
/// exponent. Heads beyond the largest power of two have the odd steps of the next one.
template <class C>
FORGE_DEVICE float alibi_slope(int head) {
  constexpr int kPower = power_within(C::kHeads);
  constexpr float kLog2E = 1.44269504088896f;
  const float step = head < kPower ? static_cast<float>(head + 1) : static_cast<float>(2 * (head - kPower) + 1) * 0.5f;
  return exp2_of(-C::kAlibi * step / static_cast<float>(kPower)) * kLog2E;
}

}  // namespace forge::gpu
