#pragma once
// Mixture-of-experts FFNs: router, routed experts and shared expert. Families pass the result to decoder_layer() in
// place of a dense FFN.

#include "loader/arch/blocks.h"

namespace forge::loader {

/// Sizes of a model's experts.
struct ExpertParams {
  std::int64_t count = 0;  ///< routed experts a layer; 0: the model has none
  std::int64_t used = 0;   ///< experts that a token is routed to
  std::int64_t width = 0;  ///< hidden columns of one expert
};

/// Reads "<family>.expert_*". Errors: kModelFormat for counts that contradict each other (with both numbers),
/// kModelUnsupported for too many experts.
ExpertParams expert_params(const DecoderBuilder& model);

/// The routed experts' part of an FFN: chooses experts by the router's `logits` [M, count], runs their gated FFNs on x
/// [M, width] and sums the results by routing weight. Tensors as for moe_ffn; `route` needs no `used`.
ir::Value routed_experts(DecoderBuilder& model, ir::Value x, ir::Value logits, std::int64_t layer,
                         const ExpertParams& experts, ir::RouteAttrs route, ir::Activation activation);

/// The FFN of a layer with experts: the router, the gated FFNs of the chosen experts and the sum of their results by
/// routing weight; plus a shared expert if the file has one, multiplied by a sigmoid gate with `shared_gate`. The
/// family sets `route` (except `used`, which is read from the file) and `activation`. Tensors of layer N, all
/// "blk.N.<name>":
///   ffn_gate_inp               [experts, width]       router
///   exp_probs_b.bias           [experts]              bias of the choice; optional
///   ffn_{gate,up,down}_exps    [experts, rows, cols]  routed experts, with optional biases [experts, rows]
///   ffn_gate_up_exps           [experts, 2 * rows, cols]  instead of gate and up; an expert's gate comes first
///   ffn_down_exps.scale        [experts]              factor on an expert's result; optional
///   ffn_{gate,up,down}.E       [rows, cols]           the same for each expert E, in files from before April 2024
///   ffn_{gate,up,down}_shexp   [rows, cols]           shared expert; optional
///   ffn_gate_inp_shexp         [width]                gate of the shared expert, with `shared_gate`
/// `model` must outlive the result. Errors: kModelFormat if the file has no experts.
DecoderBuilder::Ffn moe_ffn(DecoderBuilder& model, ir::RouteAttrs route,
                            ir::Activation activation = ir::Activation::kSilu, bool shared_gate = false);

/// The router's options from the metadata: expert_gating_func (1 softmax, 2 sigmoid; if absent, sigmoid for routers
/// with a bias, else softmax), expert_weights_norm (if absent, `fallback`), expert_weights_scale, expert_group_count
/// and expert_group_used_count. Errors: kModelUnsupported for another gate, kModelFormat for groups that do not match
/// the experts.
ir::RouteAttrs read_routing(DecoderBuilder& model, ir::RoutingNormalization fallback = ir::RoutingNormalization::kAll);

/// gated_ffn in the first "<family>.leading_dense_block_count" layers (dense first layers), moe_ffn in all others.
/// Errors: kModelFormat if that count exceeds the model's layers.
DecoderBuilder::Ffn dense_then_moe_ffn(DecoderBuilder& model, ir::RouteAttrs route);

}  // namespace forge::loader
