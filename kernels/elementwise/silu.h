#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// SiLU (swish): x / (1 + e^-x). Source: arXiv 1702.03118.
template <class V>
FORGE_FORMULA V silu(V x) {
  return times_sigmoid(x, x);
}

}  // namespace forge::elementwise
