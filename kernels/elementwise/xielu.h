#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// xIELU (arXiv 2411.13010): alpha_p x^2 + beta x for x > 0, otherwise alpha_n (e^min(x, eps) - 1 - x) + beta x, with
/// eps slightly below 0. alpha_p and alpha_n are the paper's. Model files store the trained values a_p and a_n instead:
/// alpha_p = softplus(a_p) and alpha_n = beta + softplus(a_n).
template <class V>
FORGE_FORMULA V xielu(V x, V alpha_n, V alpha_p, V beta, V eps) {
  const V positive = alpha_p * (x * x), negative = alpha_n * (expm1(min(eps, x)) - x);
  return select_lt(V(0.0f), x, positive, negative) + beta * x;
}

}  // namespace forge::elementwise
