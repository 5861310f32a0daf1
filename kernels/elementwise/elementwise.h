#pragma once
// All elementwise functions: a header with the formula and a row each, and nothing else anywhere. From a row follow the
// graph op or the activation with its verifier, text form, cost and reference (ir/), the kernels of each class of CPU
// (kernels/cpu), the device function (kernels/gpu), what may be fused, the tile op of drafts and plans and the
// epilogue's text (codegen/), and what the executor accepts (runtime/cpu).

#include "kernels/elementwise/arithmetic.h"
#include "kernels/elementwise/clamped_swish.h"
#include "kernels/elementwise/gelu.h"
#include "kernels/elementwise/relu_squared.h"
#include "kernels/elementwise/sigmoid.h"
#include "kernels/elementwise/silu.h"
#include "kernels/elementwise/softcap.h"
#include "kernels/elementwise/softplus.h"
#include "kernels/elementwise/xielu.h"

/// OP(name, Name, form, flops, parameters...): the graph op ir::Op::kName, `name` in the text form.
/// ACTIVATION(...), likewise: ir::Activation::kName, of `activate` and `glu`.
/// form: function.h's Form. flops: of one element, for the cost model; an exponential and a division count as 8.
/// A parameter is (name, range), range of function.h; the formula takes parameters behind its operands, in this order.
/// Plans hold a row's number: new rows go to the end.
#define FORGE_ELEMENTWISE_FUNCTIONS(OP, ACTIVATION)   \
  OP(add, Add, kCommutative, 1)                       \
  OP(mul, Mul, kCommutative, 1)                       \
  OP(scale, Scale, kUnary, 1, (factor, kFinite))      \
  OP(softcap, Softcap, kUnary, 8, (cap, kPositive))   \
  ACTIVATION(silu, Silu, kGate, 8)                    \
  ACTIVATION(gelu, Gelu, kGate, 8)                    \
  ACTIVATION(clamped_swish, ClampedSwish, kBinary, 8) \
  ACTIVATION(relu_squared, ReluSquared, kUnary, 8)    \
  OP(softplus, Softplus, kUnary, 16)                  \
  OP(sigmoid, Sigmoid, kUnary, 8)                     \
  ACTIVATION(xielu, Xielu, kUnary, 16, (alpha_n, kFinite), (alpha_p, kFinite), (beta, kFinite), (eps, kFinite))
