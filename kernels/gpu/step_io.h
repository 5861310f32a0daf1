#pragma once
// Layouts of what host and kernels exchange in a step. Free-standing: both sides include it.

namespace forge::gpu {

/// How the next token of one row is drawn. Rows of the step's input `sampling`.
struct SamplingRow {
  float temperature;  ///< 0: the largest logit
  float top_p;        ///< 1: off
  float min_p;        ///< 0: off
  int top_k;          ///< 0: off
  unsigned seed_low, seed_high;
  unsigned draws;  ///< random numbers drawn so far; the kernel counts on
  unsigned reserved;
};
static_assert(sizeof(SamplingRow) == 32);

/// Steps whose sampled tokens the ring in pinned memory holds.
inline constexpr int kSampledRing = 64;

/// In the ring in place of a token: the row's logits are NaN or -infinity, all of them. The next step is fed id 0.
inline constexpr int kNoNumbers = -2;

/// The step's counts: i32[4].
enum Count { kTokenCount = 0, kRowCount = 1, kSequenceCount = 2, kSampledCount = 3 };

}  // namespace forge::gpu
