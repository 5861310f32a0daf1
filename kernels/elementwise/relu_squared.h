#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// Squared ReLU, max(x, 0)^2. Source: arXiv 2109.08668.
template <class V>
FORGE_FORMULA V relu_squared(V x) {
  const V positive = max(V(0.0f), x);  // max returns its second argument for NaN, so NaN passes
  return positive * positive;
}

}  // namespace forge::elementwise
