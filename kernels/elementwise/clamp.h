#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// x, not below -limit and not above limit.
template <class V>
FORGE_FORMULA V clamp(V x, V limit) {
  return min(limit, max(-limit, x));  // both return their second argument for NaN, so NaN passes
}

}  // namespace forge::elementwise
