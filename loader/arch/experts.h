#pragma once
// The mixture of experts that families have in place of a feed-forward network.

#include "loader/arch/blocks.h"

namespace forge::loader {

struct ExpertParams {
  std::int64_t count = 0, used = 0;  ///< count 0: the model has none
  std::int64_t width = 0;            ///< of one expert's hidden layer
};

/// Reads "<family>.expert_*". Errors: counts that contradict each other (both numbers), more experts than are
/// supported.
ExpertParams expert_params(const DecoderBuilder& model);

/// A layer's network (DecoderBuilder::decoder_layer): a router, the chosen experts' gated networks and the sum of their
/// results; beside them, where the file has one, a network for all tokens, with `shared_gate` times the sigmoid of a
/// number a token. `route` but for `used`, and `activation`, are the family's. Tensors: blk.N.ffn_gate_inp [experts,
/// width] and ffn_{gate,up,down}_exps [experts, rows, cols] (or, in files from before April 2024,
/// ffn_{gate,up,down}.E [rows, cols] of each expert E), biases of each where the file has them ([experts, rows]),
/// exp_probs_b.bias [experts] for the choice; ffn_{gate,up,down}_shexp and ffn_gate_inp_shexp [width]. Errors:
/// kModelFormat where the model says that it has no experts.
DecoderBuilder::Network mixture(DecoderBuilder& model, ir::RouteAttrs route,
                                ir::Activation activation = ir::Activation::kSilu, bool shared_gate = false);

/// How a file says that tokens choose: expert_gating_func (1 a softmax, 2 sigmoids; unsaid, sigmoids where the choice
/// has a bias), expert_weights_norm (else `unsaid`), expert_weights_scale, expert_group_count and
/// expert_group_used_count. Errors: kModelUnsupported for another gate, kModelFormat for groups that do not fit the
/// experts.
ir::RouteAttrs routing(DecoderBuilder& model, ir::RouteShare unsaid = ir::RouteShare::kAll);

/// gated_ffn in the first "<family>.leading_dense_block_count" layers, a mixture in the others. Errors: kModelFormat
/// for more such layers than the model has.
DecoderBuilder::Network dense_then_mixture(DecoderBuilder& model, ir::RouteAttrs route);

}  // namespace forge::loader
