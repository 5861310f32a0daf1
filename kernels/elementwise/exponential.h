#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// e^x. RWKV-7 makes decays of their logarithms with it (arXiv 2503.14456).
template <class V>
FORGE_FORMULA V exponential(V x) {
  return exp(x);
}

}  // namespace forge::elementwise
