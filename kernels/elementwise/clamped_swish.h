#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// The GLU of gpt-oss (arXiv 2508.10925): g / (1 + e^(-1.702 g)) * (u + 1), where g = min(gate, 7) and u is `up`
/// clamped to [-7, 7].
template <class V>
FORGE_FORMULA V clamped_swish(V gate, V up) {
  const V limit = V(7.0f), bounded = min(limit, gate);  // min returns its second argument for NaN, so NaN passes
  const V shifted = min(limit, max(V(-7.0f), up)) + V(1.0f);
  return times_sigmoid(bounded, bounded * V(1.702f)) * shifted;
}

}  // namespace forge::elementwise
