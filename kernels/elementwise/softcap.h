#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// Soft-cap of logits, cap * tanh(x / cap), as in Gemma 2 (arXiv 2408.00118).
template <class V>
FORGE_FORMULA V softcap(V x, V cap) {
  return scaled_tanh(x, cap);
}

}  // namespace forge::elementwise
