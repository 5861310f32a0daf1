#pragma once
// The list of all elementwise functions. Each function is one header with its formula and one row below; nothing else
// is written per function. Everything else is generated from the rows: the graph op or activation with its verifier,
// text form, cost and reference (ir/), the kernels of each CPU class (kernels/cpu), the device function (kernels/gpu),
// fusion, the tile op in drafts and plans, the epilogue's source text (codegen/), and the checks of the executor
// (runtime/cpu).

#include "kernels/elementwise/arithmetic.h"
#include "kernels/elementwise/clamp.h"
#include "kernels/elementwise/clamped_swish.h"
#include "kernels/elementwise/exponential.h"
#include "kernels/elementwise/gelu.h"
#include "kernels/elementwise/limited_silu.h"
#include "kernels/elementwise/relu.h"
#include "kernels/elementwise/relu_squared.h"
#include "kernels/elementwise/sigmoid.h"
#include "kernels/elementwise/silu.h"
#include "kernels/elementwise/softcap.h"
#include "kernels/elementwise/softplus.h"
#include "kernels/elementwise/xielu.h"

/// OP(name, Name, form, flops, parameters...) defines the graph op ir::Op::kName, written `name` in the text form.
/// ACTIVATION(...) defines ir::Activation::kName in the same way; `activate` and `glu` take it as an attribute.
///   form        one of function.h's Form
///   flops       per element, for the cost model; an exponential and a division count as 8
///   parameters  each is (name, range) with function.h's Range; the formula takes them after its operands, in order
/// Plans store a row's number, so new rows go to the end.
#define FORGE_ELEMENTWISE_FUNCTIONS(OP, ACTIVATION)                                                             \
  OP(add, Add, kCommutative, 1)                                                                                 \
  OP(mul, Mul, kCommutative, 1)                                                                                 \
  OP(scale, Scale, kUnary, 1, (factor, kFinite))                                                                \
  OP(softcap, Softcap, kUnary, 8, (cap, kPositive))                                                             \
  ACTIVATION(silu, Silu, kGate, 8)                                                                              \
  ACTIVATION(gelu, Gelu, kGate, 8)                                                                              \
  ACTIVATION(clamped_swish, ClampedSwish, kBinary, 8)                                                           \
  ACTIVATION(relu_squared, ReluSquared, kUnary, 8)                                                              \
  OP(softplus, Softplus, kUnary, 16)                                                                            \
  OP(sigmoid, Sigmoid, kUnary, 8)                                                                               \
  ACTIVATION(xielu, Xielu, kUnary, 16, (alpha_n, kFinite), (alpha_p, kFinite), (beta, kFinite), (eps, kFinite)) \
  ACTIVATION(relu, Relu, kGate, 1)                                                                              \
  ACTIVATION(limited_silu, LimitedSilu, kBinary, 8, (limit, kPositive))                                         \
  OP(clamp, Clamp, kUnary, 2, (limit, kPositive))                                                               \
  OP(exponential, Exponential, kUnary, 8)
