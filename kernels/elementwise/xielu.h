#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// xIELU (arXiv 2411.13010): alpha_p x^2 + beta x above 0, else alpha_n (e^min(x, eps) - 1 - x) + beta x, eps slightly
/// below 0. The alphas are the paper's; what is trained, and stands in files, is a with alpha_p = softplus(a_p) and
/// alpha_n = beta + softplus(a_n).
template <class V>
FORGE_FORMULA V xielu(V x, V alpha_n, V alpha_p, V beta, V eps) {
  const V positive = alpha_p * (x * x), negative = alpha_n * (expm1(min(eps, x)) - x);
  return select_lt(V(0.0f), x, positive, negative) + beta * x;
}

}  // namespace forge::elementwise
