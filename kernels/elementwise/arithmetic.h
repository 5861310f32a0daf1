#pragma once
// Addition, multiplication and scaling by a constant. They have formulas like the activations, so that one list covers
// all elementwise ops.

#include "kernels/elementwise/formula.h"

namespace forge::elementwise {

template <class V>
FORGE_FORMULA V add(V x, V y) {
  return x + y;
}
template <class V>
FORGE_FORMULA V mul(V x, V y) {
  return x * y;
}
template <class V>
FORGE_FORMULA V scale(V x, V factor) {
  return x * factor;
}

}  // namespace forge::elementwise
