#include "loader/arch/experts.h"

#include <fmt/format.h>

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

/// The gated FFNs of the chosen experts on x [M, width], from tensors "ffn_{gate,up,down}_<suffix>": [M, U, width], one
/// row for each token and expert. Some files have gate and up in one tensor; old files have one tensor
/// "ffn_up.<expert>" for each expert instead.
ir::Value expert_ffns(DecoderBuilder& model, ir::Value x, std::int64_t layer, std::string_view suffix,
                      const ExpertParams& experts, ir::Value chosen, ir::Activation activation) {
  const auto linear = [&](ir::Value rows, std::string_view name, std::int64_t n, std::int64_t k) {
    const auto stem = model.at(layer, fmt::format("ffn_{}_{}", name, suffix));
    const bool scattered = suffix == kRoutedSuffix && !model.has(stem + ".weight") &&
                           model.has(model.at(layer, fmt::format("ffn_{}.0.weight", name)));
    const auto each = model.at(layer, fmt::format("ffn_{}.{}.weight", name, ir::kExpertWildcard));
    const auto both = model.at(layer, fmt::format("ffn_gate_up_{}.weight", suffix));
    const ir::Value weights = name != "down" && model.has(both)
                                  ? half_of_gate_up(model, both, name == "up", n, k, experts.count)
                              : scattered ? model.per_expert_weight(each, n, k, experts.count)
                                          : model.weight(stem + ".weight", n, k, experts.count);
    const ir::Value y = model.ir().expert_matmul(rows, weights, chosen);
    return model.has(stem + ".bias")
               ? model.ir().expert_add(y, expert_bias(model, stem + ".bias", experts.count, n), chosen)
               : y;
  };
  const std::int64_t width = model.params().width;
  const ir::Value gate = linear(x, "gate", experts.width, width);
  const ir::Value up = linear(x, "up", experts.width, width);
  return linear(model.ir().glu(gate, up, activation), "down", width, experts.width);
}

/// The shared expert, which every token uses. With a gate its result is multiplied by the sigmoid of one logit a token:
/// that is a mixture of one expert with a sigmoid router.
ir::Value shared_expert(DecoderBuilder& model, ir::Value x, std::int64_t layer, ir::Activation activation, bool gated) {
  const auto& p = model.params();
  const std::int64_t hidden = model.tensor(model.at(layer, "ffn_up_shexp.weight")).rows();
  if (gated) {
    const auto gate = model.weight(model.at(layer, "ffn_gate_inp_shexp.weight"), 1, p.width);
    const ir::Value logit = model.ir().matmul(x, gate);
    const auto [all, share] = model.ir().route(logit, {.gate = ir::RouteGate::kSigmoid});
    return model.ir().expert_sum(expert_ffns(model, x, layer, "shexp", {1, 1, hidden}, all, activation), share);
  }
  const auto linear = [&](ir::Value rows, const char* stem, std::int64_t n, std::int64_t k) {
    return model.linear(rows, model.at(layer, stem), n, k);
  };
  const ir::Value first = linear(x, "ffn_gate_shexp", hidden, p.width), up = linear(x, "ffn_up_shexp", hidden, p.width);
  return linear(model.ir().glu(first, up, activation), "ffn_down_shexp", p.width, hidden);
}

}  // namespace

ExpertParams expert_params(const DecoderBuilder& model) {
  const auto& file = model.file();
  ExpertParams p{.count = file.get<std::int64_t>(model.key("expert_count"), 0)};
  if (p.count == 0) return p;
  if (p.count < 0) contradiction("the number of experts is out of range", fmt::format("{}", p.count));
  model.refuse_if(p.count > kExpertsMax, fmt::format("{} experts (at most {})", p.count, kExpertsMax));
  p.used = file.require<std::int64_t>(model.key("expert_used_count"));
  if (p.used < 1 || p.used > p.count)
    contradiction("the number of experts a token is out of range", fmt::format("{} of {}", p.used, p.count));
  // Early converters did not write the experts' width. Their qwen2moe files give the sum of a token's experts as
  // feed_forward_length, others the width of one expert.
  const auto ffn_width = model.params().ffn_width;
  const auto fallback = model.family() == "qwen2moe" ? std::max<std::int64_t>(ffn_width / p.used, 1) : ffn_width;
  p.width = positive(file, model.key("expert_feed_forward_length"), fallback);
  return p;
}

ir::Value routed_experts(DecoderBuilder& model, ir::Value x, ir::Value logits, std::int64_t layer,
                         const ExpertParams& experts, ir::RouteAttrs route, ir::Activation activation) {
  const auto vector = [&](const std::string& name) {
    return model.has(name) ? model.weight(name, experts.count) : ir::Value{};
  };
  route.used = experts.used;
  const auto [chosen, shares] = model.ir().route(logits, route, vector(model.at(layer, "exp_probs_b.bias")),
                                                 vector(model.at(layer, "ffn_down_exps.scale")));
  return model.ir().expert_sum(expert_ffns(model, x, layer, kRoutedSuffix, experts, chosen, activation), shares);
}

DecoderBuilder::Ffn moe_ffn(DecoderBuilder& model, ir::RouteAttrs route, ir::Activation activation, bool shared_gate) {
  const ExpertParams experts = expert_params(model);
  if (experts.count == 0)
    contradiction("a mixture-of-experts model has no experts", model.key("expert_count") + " is 0 or missing");
  return [&model, route, activation, shared_gate, experts](ir::Value x, std::int64_t layer) {
    const ir::Value logits = model.linear(x, model.at(layer, "ffn_gate_inp"), experts.count, model.params().width);
    const ir::Value mixed = routed_experts(model, x, logits, layer, experts, route, activation);
    const bool shared = model.has(model.at(layer, "ffn_up_shexp.weight"));
    return shared ? model.ir().add(mixed, shared_expert(model, x, layer, activation, shared_gate)) : mixed;
  };
}

ir::RouteAttrs read_routing(DecoderBuilder& model, ir::RoutingNormalization fallback) {
  const auto& file = model.file();
  const bool biased = model.has(model.at(model.params().layers - 1, "exp_probs_b.bias"));
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

DecoderBuilder::Ffn dense_then_moe_ffn(DecoderBuilder& model, ir::RouteAttrs route) {
  const auto layers = model.params().layers;
  const auto dense = model.file().get<std::int64_t>(model.key("leading_dense_block_count"), 0);
  if (dense < 0 || dense > layers)
    contradiction("the number of dense first layers is out of range", fmt::format("{} of {}", dense, layers));
  const auto experts = dense < layers ? moe_ffn(model, route) : DecoderBuilder::Ffn{};
  return [&model, dense, experts](ir::Value x, std::int64_t layer) {
    return layer < dense ? model.gated_ffn(x, layer, ir::Activation::kSilu) : experts(x, layer);
  };
}

}  // namespace forge::loader
