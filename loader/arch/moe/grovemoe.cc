// grovemoe: GroveMoE. As qwen3moe, with adjugate experts: small ones that a group of experts shares. They run on the
// sum of the experts' results, and are those of the chosen experts' groups; their routing weights are the scores of the
// experts that have the groups' numbers, divided by their sum. Both is as published models are run, not as the paper
// has it. Source: arXiv 2508.07785 and the published configuration.

#include <fmt/format.h>

#include <algorithm>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// The adjugate experts' sum on y, the experts' result on x.
ir::Value adjugate_experts(DecoderBuilder& model, ir::Value x, ir::Value y, std::int64_t layer) {
  const auto experts = expert_params(model);
  const auto each = positive(model.file(), model.key("experts_per_group"));
  if (experts.count % each != 0)
    contradiction("the experts are not whole groups", fmt::format("{} in groups of {}", experts.count, each));
  const auto groups = experts.count / each, used = std::min(experts.used, groups);
  const auto width = positive(model.file(), model.key("expert_chunk_feed_forward_length"),
                              model.tensor(model.at(layer, "ffn_up_chexps.weight")).dims[1]);
  const ir::Value logits =
      model.linear(x, model.at(layer, "ffn_gate_inp"), experts.count, model.params().width);  // as of the experts
  const auto [numbers, shares] = model.ir().route(
      logits, {.used = used, .share = ir::RoutingNormalization::kChosen, .experts_per_adjugate = each});
  const ChosenExperts chosen{layer, "chexps", {groups, used, width}, numbers};
  return model.ir().expert_sum(expert_ffns(model, y, chosen, ir::Activation::kSilu), shares);
}

}  // namespace

PortableModel build_grovemoe(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  const float scale = model.feature("expert_group_scale", 1);
  const auto ffn = [&](ir::Value x, std::int64_t layer) {
    const ir::Value y = moe_layer(model, x, layer, {.share = ir::RoutingNormalization::kChosen});
    return model.residual(y, adjugate_experts(model, x, y, layer), scale);
  };
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, {}, ffn); }));
}

}  // namespace forge::loader
