#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// max(x, 0)^2: arXiv 2109.08668.
template <class V>
FORGE_FORMULA V relu_squared(V x) {
  const V positive = max(V(0.0f), x);  // this order lets NaN through
  return positive * positive;
}

}  // namespace forge::elementwise
