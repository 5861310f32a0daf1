// cohere2moe: the mixture-of-experts models of Command A. As cohere2: parallel residual, LayerNorm without bias
// (RMSNorm in files that have its epsilon), a scale on the logits, and four layers that repeat: one with full attention
// and no RoPE (NoPE), three with a sliding window and RoPE in kPairs mode. Dense first layers rotate too. Expert layers
// use half of the sum of experts and shared expert. Source: the published configuration.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_cohere2_moe(const Gguf& file) {
  const bool rms = file.has(file.require<std::string>("general.architecture") + ".attention.layer_norm_rms_epsilon");
  DecoderBuilder model(file, rms ? NormKind::kRms : NormKind::kLayer);
  auto global = model.attention_spec(ir::RopeMode::kPairs), local = global;
  global.use_rope = false;
  local.window = model.sliding_window();
  const auto attention = model.alternate(local, global, 4, GlobalLayer::kFirst);
  const auto dense = dense_first_layers(model);
  const auto route = read_routing(model);
  const float logit_scale = model.feature("logit_scale", 1);
  const auto x = model.each_layer(model.embed(), [&](ir::Value in, std::int64_t layer) {
    const ir::Value normed = model.norm(in, model.at(layer, "attn_norm"));
    auto of_layer = attention(layer);
    if (layer < dense) of_layer.use_rope = true;
    const ir::Value attended = model.residual(in, model.attention(normed, layer, of_layer));
    if (layer < dense) return model.residual(attended, model.gated_ffn(normed, layer, ir::Activation::kSilu));
    (void)model.tensor(model.at(layer, "ffn_up_shexp.weight"));  // half of a sum needs both of its parts
    return model.residual(attended, moe_layer(model, normed, layer, route), 0.5F);
  });
  return model.finish(x, logit_scale == 0 ? 1 : logit_scale);
}

}  // namespace forge::loader
