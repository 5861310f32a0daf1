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

/// Reads "<family>.expert_*": the sizes in one layer, or without `layer` the largest of any. Errors: kModelFormat for
/// counts that contradict each other (with both numbers), kModelUnsupported for too many experts.
ExpertParams expert_params(const DecoderBuilder& model, std::optional<std::int64_t> layer = {});

/// The chosen experts of each row of a layer: numbers i32 [M, U], from tensors
/// "blk.<layer>.ffn_{gate,up,down}_<suffix>" of `experts`.count experts with `experts`.width hidden columns.
struct ChosenExperts {
  std::int64_t layer = 0;
  std::string_view suffix = "exps";
  ExpertParams experts;
  ir::Value numbers;
  bool down_in_shares = false;  ///< the routing weights have the factors of ffn_down's results
};

/// The FFNs of the chosen experts on x [M, width]: [M, U, width], one row for each token and expert. Without `gated`
/// they have no gate matrix: down(act(up(x))).
ir::Value expert_ffns(DecoderBuilder& model, ir::Value x, const ChosenExperts& of, ir::Activation activation,
                      const elementwise::Parameters& parameters = {}, bool gated = true);

/// What a routing weight multiplies: an expert's result, or its input.
enum class ExpertWeighting : std::uint8_t { kOutput, kInput };

/// Options of a layer's experts, besides those of the router.
struct ExpertSpec {
  ir::Activation activation = ir::Activation::kSilu;
  elementwise::Parameters parameters{};  ///< of the activation
  ExpertWeighting weighting = ExpertWeighting::kOutput;
  bool shared_gate = false;  ///< the shared expert is multiplied by a sigmoid gate
  ir::Activation shared_activation = ir::Activation::kSilu;
  elementwise::Parameters shared_parameters{};
  bool gated = true;        ///< false: all experts are down(act(up(x))), without gate matrices
  std::int64_t latent = 0;  ///< columns of the routed experts' input and result, if these are not the width's
};

/// The routed experts' part of an FFN: chooses experts by the router's `logits` [M, count], runs their gated FFNs on x
/// [M, width] and sums the results by routing weight. Tensors as for moe_layer; `route` needs no `used`. Errors:
/// kModelFormat if the file has no experts.
ir::Value routed_experts(DecoderBuilder& model, ir::Value x, ir::Value logits, std::int64_t layer, ir::RouteAttrs route,
                         const ExpertSpec& spec);

/// The FFN of one layer with experts on x [M, width]: the router, the gated FFNs of the chosen experts and the sum of
/// their results by routing weight; plus a shared expert if the file has one. The router reads `router_input`, or x if
/// that is Value{}. The family sets `route`, except `used`, which is read from the file. Tensors of layer N, all
/// "blk.N.<name>":
///   ffn_gate_inp               [experts, width]       router
///   exp_probs_b.bias           [experts]              bias of the choice; optional
///   ffn_{gate,up,down}_exps    [experts, rows, cols]  routed experts, with optional biases [experts, rows]
///   ffn_gate_up_exps           [experts, 2 * rows, cols]  instead of gate and up; an expert's gate comes first
///   ffn_{gate,up,down}_exps.scale  [experts]          factor on an expert's products (NVFP4); optional
///   ffn_{gate,up,down}.E       [rows, cols]           the same for each expert E, in files from before April 2024
///   ffn_{gate,up,down}_shexp   [rows, cols]           shared expert; optional
///   ffn_gate_inp_shexp         [width]                gate of the shared expert, with `shared_gate`
///   ffn_latent_down, _up       [latent, width], [width, latent]  around the routed experts, with `latent`
/// Errors: kModelFormat if the file has no experts.
ir::Value moe_layer(DecoderBuilder& model, ir::Value x, std::int64_t layer, ir::RouteAttrs route,
                    const ExpertSpec& spec = {}, ir::Value router_input = {});

/// moe_layer for decoder_layer(), with the same activation in the shared expert, which `shared_gate` multiplies by its
/// gate. `model` must outlive the result.
DecoderBuilder::Ffn moe_ffn(DecoderBuilder& model, ir::RouteAttrs route,
                            ir::Activation activation = ir::Activation::kSilu, bool shared_gate = false);

/// The router's options from the metadata: expert_gating_func (1 softmax, 2 sigmoid; if absent, sigmoid for routers
/// with a bias, else softmax), expert_weights_norm (if absent, `fallback`), expert_weights_scale, expert_group_count
/// and expert_group_used_count. Errors: kModelUnsupported for another gate, kModelFormat for groups that do not match
/// the experts.
ir::RouteAttrs read_routing(DecoderBuilder& model, ir::RoutingNormalization fallback = ir::RoutingNormalization::kAll);

/// "<family>.leading_dense_block_count": the number of dense first layers. Errors: kModelFormat if it exceeds the
/// model's layers.
std::int64_t dense_first_layers(const DecoderBuilder& model);

/// gated_ffn in the dense first layers, moe_ffn in all others.
DecoderBuilder::Ffn dense_then_moe_ffn(DecoderBuilder& model, ir::RouteAttrs route);

}  // namespace forge::loader
