#pragma once
// Sums and products.

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
