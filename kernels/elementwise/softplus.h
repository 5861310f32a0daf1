#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// ln(1 + e^x), written as max(x, 0) + log1p(e^-|x|) so that neither e^x overflows nor large numbers cancel. Mamba's
/// scans use it to make their time steps positive (arXiv 2312.00752).
template <class V>
FORGE_FORMULA V softplus(V x) {
  return max(V(0.0f), x) + log1p(exp(-abs(x)));  // max returns its second argument for NaN
}

}  // namespace forge::elementwise
