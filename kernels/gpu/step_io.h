#pragma once
// Data that host and kernels exchange in a step. Free-standing: the host (runtime/plan, runtime/gpu) and the device
// sources include it.

namespace forge::gpu {

/// Sampling parameters of one row; the step's input `sampling` is an array of them.
struct SamplingRow {
  float temperature;  ///< 0: greedy, the largest logit
  float top_p;        ///< 1: off
  float min_p;        ///< 0: off
  int top_k;          ///< 0: off
  unsigned seed_low, seed_high;
  unsigned draws;   ///< random numbers drawn so far; the kernel advances it
  unsigned masked;  ///< 1: only tokens of the row's mask may be chosen; 0: the mask is not read
};
static_assert(sizeof(SamplingRow) == 32);

/// Steps that the ring of sampled tokens in pinned host memory has room for.
inline constexpr int kSampledRing = 64;

/// Stands in the ring in place of a token if all logits of the row are NaN or -infinity. The next step gets id 0.
inline constexpr int kNoFiniteLogits = -2;

/// Indices of the step's input `counts`, i32[4]: real tokens, rows of logits and sequences of this step, and steps
/// sampled so far.
enum Count { kTokenCount = 0, kRowCount = 1, kSequenceCount = 2, kSampledCount = 3 };

}  // namespace forge::gpu
