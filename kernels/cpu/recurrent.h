#pragma once
// Arguments of the CPU kernels with recurrent state (recurrent-inl.h). A call computes some columns of one sequence's
// run of tokens; columns do not depend on each other, so any division into calls gives the same bits, and so does any
// division of the tokens into steps.
//
// `read` is the state before the first token, nullptr for zeros; the state after the last token goes to `write`, which
// may be `read`. Both point at the call's first column; rows of a state are `state_stride` floats apart. All strides
// are in floats, from token to token unless stated otherwise.

#include <cstddef>

namespace forge::cpu {

/// Largest number of rows of a state: key_dim of a delta rule, state_dim of a scan, head_dim of RWKV-7.
inline constexpr std::size_t kStateRowsMax = 512;
/// Most taps of a short convolution.
inline constexpr std::size_t kConvTapsMax = 16;

/// Rows of floats, one a token: the first one and the distance.
struct TokenFloats {
  const float* data = nullptr;
  std::size_t stride = 0;
};

/// What all calls have.
struct StateCall {
  std::size_t tokens = 0, columns = 0;
  const float* read = nullptr;
  float* write = nullptr;
  std::size_t state_stride = 0;
  float* out = nullptr;
  std::size_t out_stride = 0;
};

/// Causal convolution. x, out: [tokens][columns]; kernel: [columns][taps]; bias: [columns] or nullptr; state:
/// [taps - 1][columns], the oldest input first.
struct ShortConvCall : StateCall {
  std::size_t taps = 0;
  TokenFloats x;
  const float* kernel = nullptr;
  const float* bias = nullptr;
};

/// Gated delta rule of one head (ir::DeltaRuleAttrs). q, k: [key_dim]; v, out: [columns]; decay: one logarithm, or
/// [key_dim] with `decay_each_row`; beta: one number. State: [key_dim][columns].
struct DeltaRuleCall : StateCall {
  std::size_t key_dim = 0;
  TokenFloats q, k, v, decay, beta;
  bool decay_each_row = false;
  float scale = 1, norm_eps = 0;
};

/// Selective scan (ir::SelectiveScanAttrs) in one of two forms:
///   scan_head      one head: x, out [columns], dt one number, a [state_dim] or, unless a_each_state, one number, d one
///   scan_channels  `columns` heads of one column each: x, dt, out [columns], a [columns][state_dim] or [columns],
///                  d [columns]
/// b, c: [state_dim]. State: [state_dim][columns].
struct SelectiveScanCall : StateCall {
  std::size_t state_dim = 0;
  TokenFloats x, dt, b, c;
  const float* a = nullptr;
  bool a_each_state = false;
  const float* d = nullptr;
};

/// RWKV-7 of one head (ir::Rwkv7Attrs). r, w, k, a, b: [head_dim]; v, out: [columns]. State: [head_dim][columns].
struct Rwkv7Call : StateCall {
  std::size_t head_dim = 0;
  TokenFloats r, w, k, v, a, b;
};

}  // namespace forge::cpu
