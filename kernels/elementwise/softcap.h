#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// cap tanh(x / cap), as Gemma 2 bounds its logits (arXiv 2408.00118).
template <class V>
FORGE_FORMULA V softcap(V x, V cap) {
  return scaled_tanh(x, cap);
}

}  // namespace forge::elementwise
