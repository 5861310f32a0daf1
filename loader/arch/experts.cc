#include "loader/arch/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"

namespace forge::loader {
namespace {

constexpr std::int64_t kExpertsMax = 1024;  // limit of the back-ends

/// Tensor name suffix of the routed experts ("ffn_up_exps"); that of the shared expert is "shexp".
constexpr std::string_view kRoutedSuffix = "exps";

/// The bias vectors of all experts: the file has [count, rows], the graph takes [count, rows, 1] (expert_add).
ir::Value expert_bias(DecoderBuilder& model, const std::string& name, std::int64_t count, std::int64_t rows) {
  const auto& tensor = model.tensor(name);
  if (tensor.rank > 2 || tensor.cols() != rows || tensor.rows() != count)
    contradiction("a tensor has the wrong shape",
                  fmt::format("{} where the metadata requires [{}, {}]", tensor.describe(), count, rows));
  if (tensor.dtype != DType::kF32)
    throw Error(ErrorCode::kModelUnsupported, "a bias is not f32", tensor.describe(), "convert the model again");
  return model.ir().weight(name, DType::kF32, {count, rows, 1});
}

/// Gate or up weights [count, rows, cols] of all experts, as rows of "ffn_gate_up_<suffix>" [count, 2 * rows, cols]:
/// first the gates'.
ir::Value half_of_gate_up(DecoderBuilder& model, const std::string& name, bool up, std::int64_t rows, std::int64_t cols,
                          std::int64_t count) {
  return model.ir().slice_rows(model.weight(name, 2 * rows, cols, count), up ? rows : 0, rows);
}

/// The chosen experts' matrices times x: [M, U, n]. Some files have gate and up in one tensor; old
/// files have one tensor "ffn_up.<expert>" for each expert.
ir::Value expert_product(DecoderBuilder& model, ir::Value x, const ChosenExperts& of, std::string_view name,
                         std::int64_t n, std::int64_t k) {
  const auto stem = model.at(of.layer, fmt::format("ffn_{}_{}", name, of.suffix));
  const bool scattered = of.suffix == kRoutedSuffix && !model.has(stem + ".weight") &&
                         model.has(model.at(of.layer, fmt::format("ffn_{}.0.weight", name)));
  const auto each = model.at(of.layer, fmt::format("ffn_{}.{}.weight", name, ir::kExpertWildcard));
  const auto both = model.at(of.layer, fmt::format("ffn_gate_up_{}.weight", of.suffix));
  const ir::Value weights = name != "down" && model.has(both)
                                ? half_of_gate_up(model, both, name == "up", n, k, of.experts.count)
                            : scattered ? model.per_expert_weight(each, n, k, of.experts.count)
                                        : model.weight(stem + ".weight", n, k, of.experts.count);
  const ir::Value product = model.ir().expert_matmul(x, weights, of.numbers);
  const bool folded = name == "down" && of.down_in_shares;
  if (folded || !model.has(stem + ".scale")) return product;
  return model.ir().expert_scale(product, model.weight(stem + ".scale", of.experts.count), of.numbers);
}

}  // namespace

ir::Value expert_ffns(DecoderBuilder& model, ir::Value x, const ChosenExperts& of, ir::Activation activation,
                      const elementwise::Parameters& parameters, bool gated) {
  const auto linear = [&](ir::Value rows, std::string_view name, std::int64_t n, std::int64_t k) {
    const ir::Value y = expert_product(model, rows, of, name, n, k);
    const auto bias = model.at(of.layer, fmt::format("ffn_{}_{}.bias", name, of.suffix));
    return model.has(bias) ? model.ir().expert_add(y, expert_bias(model, bias, of.experts.count, n), of.numbers) : y;
  };
  auto& ir = model.ir();
  const std::int64_t width = ir.graph().type(x).cols(), n = of.experts.width;
  const ir::Value gate = gated ? linear(x, "gate", n, width) : ir::Value{}, up = linear(x, "up", n, width);
  const ir::Value hidden = gated ? ir.glu(gate, up, activation, parameters) : ir.activate(up, activation, parameters);
  return linear(hidden, "down", width, n);
}

namespace {

/// The FFN of one expert a token on x times the expert's share: [M, width]. Instead of x, the products of x with gate
/// and up are multiplied by the share, which is the same: a sum over the token's only slot, weighted by its share.
ir::Value expert_of_weighted_input(DecoderBuilder& model, ir::Value x, const ChosenExperts& of, ir::Value shares,
                                   const ExpertSpec& spec) {
  model.refuse_if(of.experts.used > 1, fmt::format("{} experts a token, whose inputs are weighted,", of.experts.used));
  const std::int64_t width = model.params().width;
  const auto weighted = [&](std::string_view name) {
    return model.ir().expert_sum(expert_product(model, x, of, name, of.experts.width, width), shares);
  };
  const ir::Value hidden = model.ir().glu(weighted("gate"), weighted("up"), spec.activation, spec.parameters);
  const ir::Builder::Piece slot[] = {
      {.x = expert_product(model, hidden, of, "down", width, of.experts.width), .width = width}};
  return model.ir().arrange(1, slot);
}

/// The shared expert, which every token uses. With a gate its result is multiplied by the sigmoid of one logit a token:
/// that is a mixture of one expert with a sigmoid router.
ir::Value shared_expert(DecoderBuilder& model, ir::Value x, std::int64_t layer, const ExpertSpec& spec) {
  const auto& p = model.params();
  const std::int64_t hidden = model.tensor(model.at(layer, "ffn_up_shexp.weight")).rows();
  if (spec.shared_gate) {
    const auto gate = model.weight(model.at(layer, "ffn_gate_inp_shexp.weight"), 1, p.width);
    const ir::Value logit = model.ir().matmul(x, gate);
    const auto [all, share] = model.ir().route(logit, {.gate = ir::RouteGate::kSigmoid});
    const ChosenExperts only{layer, "shexp", {1, 1, hidden}, all};
    return model.ir().expert_sum(expert_ffns(model, x, only, spec.shared_activation, spec.shared_parameters), share);
  }
  const auto linear = [&](ir::Value rows, const char* stem, std::int64_t n, std::int64_t k) {
    return model.linear(rows, model.at(layer, stem), n, k);
  };
  const ir::Value gate = spec.gated ? linear(x, "ffn_gate_shexp", hidden, p.width) : ir::Value{};
  const ir::Value up = linear(x, "ffn_up_shexp", hidden, p.width);
  const ir::Value active = spec.gated ? model.ir().glu(gate, up, spec.shared_activation, spec.shared_parameters)
                                      : model.ir().activate(up, spec.shared_activation, spec.shared_parameters);
  return linear(active, "ffn_down_shexp", p.width, hidden);
}

}  // namespace

ExpertParams expert_params(const DecoderBuilder& model, std::optional<std::int64_t> layer) {
  const auto& file = model.file();
  ExpertParams p{.count = file.get<std::int64_t>(model.key("expert_count"), 0)};
  if (p.count == 0) return p;
  if (p.count < 0) contradiction("the number of experts is out of range", fmt::format("{}", p.count));
  model.refuse_if(p.count > kExpertsMax, fmt::format("{} experts (at most {})", p.count, kExpertsMax));
  const auto pick = [&](const std::vector<std::int64_t>& of_layers) {
    return layer ? of_layers[static_cast<std::size_t>(*layer)] : std::ranges::max(of_layers);
  };
  p.used = pick(model.per_layer("expert_used_count"));
  if (p.used < 1 || p.used > p.count)
    contradiction("the number of experts a token is out of range", fmt::format("{} of {}", p.used, p.count));
  // Early converters did not write the experts' width. Their qwen2moe files give the sum of a token's experts as
  // feed_forward_length, others the width of one expert.
  const auto ffn_width = model.params().ffn_width;
  const auto fallback = model.family() == "qwen2moe" ? std::max<std::int64_t>(ffn_width / p.used, 1) : ffn_width;
  p.width = pick(model.per_layer("expert_feed_forward_length", fallback));
  if (p.width < 1) contradiction("the experts have no hidden columns", model.key("expert_feed_forward_length"));
  return p;
}

ir::Value routed_experts(DecoderBuilder& model, ir::Value x, ir::Value logits, std::int64_t layer, ir::RouteAttrs route,
                         const ExpertSpec& spec) {
  const ExpertParams experts = expert_params(model, layer);
  if (experts.count == 0)
    contradiction("a mixture-of-experts model has no experts", model.key("expert_count") + " is 0 or missing");
  const auto vector = [&](const std::string& name) {
    return model.has(name) ? model.weight(name, experts.count) : ir::Value{};
  };
  route.used = experts.used;
  // A factor on an expert's result is one on its routing weight, if that multiplies the result.
  const bool weighs_input = spec.weighting == ExpertWeighting::kInput;
  const auto factors = weighs_input ? ir::Value{} : vector(model.at(layer, "ffn_down_exps.scale"));
  const auto [numbers, shares] = model.ir().route(logits, route, vector(model.at(layer, "exp_probs_b.bias")), factors);
  const ChosenExperts chosen{layer, kRoutedSuffix, experts, numbers, !weighs_input};
  return weighs_input ? expert_of_weighted_input(model, x, chosen, shares, spec)
                      : model.ir().expert_sum(
                            expert_ffns(model, x, chosen, spec.activation, spec.parameters, spec.gated), shares);
}

ir::Value moe_layer(DecoderBuilder& model, ir::Value x, std::int64_t layer, ir::RouteAttrs route,
                    const ExpertSpec& spec, ir::Value router_input) {
  const ir::Value scored = router_input.node == ir::kNoNode ? x : router_input;
  const ir::Value logits =
      model.linear(scored, model.at(layer, "ffn_gate_inp"), expert_params(model).count, model.params().width);
  const std::int64_t width = model.params().width, latent = spec.latent;
  const ir::Value down = latent == 0 ? x : model.linear(x, model.at(layer, "ffn_latent_down"), latent, width);
  const ir::Value routed = routed_experts(model, down, logits, layer, route, spec);
  const ir::Value mixed = latent == 0 ? routed : model.linear(routed, model.at(layer, "ffn_latent_up"), width, latent);
  const bool shared = model.has(model.at(layer, "ffn_up_shexp.weight"));
  return shared ? model.ir().add(mixed, shared_expert(model, x, layer, spec)) : mixed;
}

DecoderBuilder::Ffn moe_ffn(DecoderBuilder& model, ir::RouteAttrs route, ir::Activation activation, bool shared_gate) {
  const ExpertSpec spec{.activation = activation, .shared_gate = shared_gate, .shared_activation = activation};
  return [&model, route, spec](ir::Value x, std::int64_t layer) { return moe_layer(model, x, layer, route, spec); };
}

ir::RouteAttrs read_routing(DecoderBuilder& model, ir::RoutingNormalization fallback) {
  const auto& file = model.file();
  bool biased = false;
  for (std::int64_t layer = 0; layer < model.params().layers; ++layer)
    biased = biased || model.has(model.at(layer, "exp_probs_b.bias"));
  const auto gate = file.get<std::int64_t>(model.key("expert_gating_func"), biased ? 2 : 1);
  model.refuse_if(gate != 1 && gate != 2, fmt::format("'expert_gating_func' = {}", gate));
  const float scale = model.feature("expert_weights_scale", 1);
  const bool over_chosen =
      file.get<bool>(model.key("expert_weights_norm"), fallback == ir::RoutingNormalization::kChosen);
  ir::RouteAttrs route{.gate = gate == 2 ? ir::RouteGate::kSigmoid : ir::RouteGate::kSoftmax,
                       .share = over_chosen ? ir::RoutingNormalization::kChosen : ir::RoutingNormalization::kAll,
                       .scale = scale == 0 ? 1 : scale};
  const auto experts = expert_params(model);
  route.groups = positive(file, model.key("expert_group_count"), 1);
  if (route.groups == 1) return route;
  route.groups_used = positive(file, model.key("expert_group_used_count"));
  // DeepSeek V3 ranks a group by the sum of its two best experts, V2 by its best one.
  route.group_top = route.gate == ir::RouteGate::kSigmoid ? 2 : 1;
  const auto size = experts.count / route.groups;
  if (experts.count % route.groups != 0 || route.groups_used > route.groups || route.group_top > size ||
      experts.used > size * route.groups_used)
    contradiction("the expert groups do not match the experts",
                  fmt::format("{} of {} experts in {} of {} groups", experts.used, experts.count, route.groups_used,
                              route.groups));
  return route;
}

std::int64_t dense_first_layers(const DecoderBuilder& model) {
  const auto layers = model.params().layers;
  const auto dense = model.file().get<std::int64_t>(model.key("leading_dense_block_count"), 0);
  if (dense < 0 || dense > layers)
    contradiction("the number of dense first layers is out of range", fmt::format("{} of {}", dense, layers));
  return dense;
}

DecoderBuilder::Ffn dense_then_moe_ffn(DecoderBuilder& model, ir::RouteAttrs route) {
  const auto dense = dense_first_layers(model);
  const auto experts = moe_ffn(model, route);
  return [&model, dense, experts](ir::Value x, std::int64_t layer) {
    return layer < dense ? model.gated_ffn(x, layer, ir::Activation::kSilu) : experts(x, layer);
  };
}

}  // namespace forge::loader
