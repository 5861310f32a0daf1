#pragma once
// The elementwise functions of kernels/elementwise on the device. Their formulas are templates over a number type,
// which is Number here. For each function there is a device function of floats with the same name, which generated
// epilogues call: silu(x), softcap(x, cap), clamped_swish(gate, up), add(x, y). A gated product is written silu(x) * y.

#include "kernels/elementwise/elementwise.h"
#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

/// A float with the operations that formulas use.
struct Number {
  float value;
  FORGE_DEVICE explicit Number(float x) : value(x) {}

  FORGE_DEVICE friend Number operator+(Number a, Number b) { return Number(a.value + b.value); }
  FORGE_DEVICE friend Number operator-(Number a, Number b) { return Number(a.value - b.value); }
  FORGE_DEVICE friend Number operator*(Number a, Number b) { return Number(a.value * b.value); }
  FORGE_DEVICE friend Number operator/(Number a, Number b) { return Number(quotient_of(a.value, b.value)); }
  FORGE_DEVICE friend Number operator-(Number a) { return Number(-a.value); }
  FORGE_DEVICE friend Number fma(Number a, Number b, Number c) { return Number(fma_of(a.value, b.value, c.value)); }
  FORGE_DEVICE friend Number min(Number a, Number b) { return Number(min_of(a.value, b.value)); }
  FORGE_DEVICE friend Number max(Number a, Number b) { return Number(max_of(a.value, b.value)); }
  FORGE_DEVICE friend Number abs(Number a) { return Number(abs_of(a.value)); }
  FORGE_DEVICE friend Number exp(Number x) { return Number(exp2_of(1.44269504088896f * x.value)); }
  /// s * tanh(x / s), by tanh(x) = 1 - 2 / (e^2x + 1).
  FORGE_DEVICE friend Number scaled_tanh(Number x, Number s) {
    return Number(s.value - quotient_of(2.0f * s.value, exp2_of(2.0f * 1.44269504088896f / s.value * x.value) + 1.0f));
  }
  FORGE_DEVICE friend Number select_lt(Number a, Number b, Number yes, Number no) {
    return a.value < b.value ? yes : no;
  }
};

#define FORGE_DEVICE_FUNCTION(name, ...)          \
  template <class... X>                           \
  FORGE_DEVICE float name(X... x) {               \
    return elementwise::name(Number(x)...).value; \
  }
FORGE_ELEMENTWISE_FUNCTIONS(FORGE_DEVICE_FUNCTION, FORGE_DEVICE_FUNCTION)
#undef FORGE_DEVICE_FUNCTION

}  // namespace forge::gpu
