#pragma once

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

/// 1 / (1 + e^-x). Used by the gates of attention outputs and of shared experts.
template <class V>
FORGE_FORMULA V sigmoid(V x) {
  return times_sigmoid(V(1.0f), x);
}

}  // namespace forge::elementwise
