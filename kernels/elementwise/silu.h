#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// x / (1 + e^-x)
template <class V>
FORGE_FORMULA V silu(V x) {
  return times_sigmoid(x, x);
}

}  // namespace forge::elementwise
