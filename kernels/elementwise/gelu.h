#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// The tanh form of GELU (arXiv 1606.08415), which GEGLU models are trained with: x/2 (1 + tanh(u)) with u = sqrt(2/pi)
/// (x + 0.044715 x^3). It equals x / (1 + e^-2u), which is what is computed.
template <class V>
FORGE_FORMULA V gelu(V x) {
  const V twice_u = x * fma(x * x, V(0.07135481627f), V(1.595769122f));
  return times_sigmoid(x, twice_u);
}

}  // namespace forge::elementwise
