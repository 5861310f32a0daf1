#pragma once
// The mixture of experts that families have in place of a feed-forward network.

#include "loader/arch/blocks.h"

namespace forge::loader {

struct ExpertParams {
  std::int64_t count = 0, used = 0;  ///< count 0: the model has none
  std::int64_t width = 0;            ///< of one expert's hidden layer
};

/// Reads "<family>.expert_*". Errors: counts that contradict each other (both numbers), more experts than are
/// supported, files from before 2024-04 with one tensor an expert.
ExpertParams expert_params(const DecoderBuilder& model);

/// Router, the chosen experts' gated networks and the sum of their results. `share` and `gate` are the family's; the
/// rest of the route's attributes come from the caller too, but for `used`.
/// Tensors: blk.N.ffn_gate_inp [experts, width] and ffn_{gate,up,down}_exps [experts, rows, cols], biases of each where
/// the file has them ([experts, rows]), exp_probs_b.bias [experts] for the choice.
ir::Value experts_ffn(DecoderBuilder& model, ir::Value x, std::int64_t layer, const ExpertParams& experts,
                      ir::RouteAttrs route, ir::Activation activation);

}  // namespace forge::loader
