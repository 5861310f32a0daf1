#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// max(x, 0)
template <class V>
FORGE_FORMULA V relu(V x) {
  return max(V(0.0f), x);  // max returns its second argument for NaN, so NaN passes
}

}  // namespace forge::elementwise
