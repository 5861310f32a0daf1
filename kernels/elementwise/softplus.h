#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// ln(1 + e^x), written so that neither e^x nor a difference of large numbers occurs: what makes the time steps of
/// Mamba's scans positive (arXiv 2312.00752).
template <class V>
FORGE_FORMULA V softplus(V x) {
  return max(V(0.0f), x) + log1p(exp(-abs(x)));  // this order lets NaN through
}

}  // namespace forge::elementwise
