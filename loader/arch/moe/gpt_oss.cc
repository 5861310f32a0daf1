// gpt-oss: gpt-oss-20b and -120b. Sliding window in every other layer; an attention sink for each head; RoPE in kHalves
// mode with YaRN; biases on all projections, router and experts included; routing weights are a softmax over the chosen
// experts; clamped GLU. The tensor of the FFN's pre-norm is called post_attention_norm. Source: arXiv 2508.10925.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_gpt_oss(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.sinks = true;
  auto local = spec;
  local.window = model.sliding_window();
  const auto attention = model.alternate(local, spec, 2);
  const LayerSpec parts{.ffn_norm = "post_attention_norm"};
  const auto experts = moe_ffn(model, {.share = ir::RoutingNormalization::kChosen}, ir::Activation::kClampedSwish);
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, attention(layer), parts, experts);
  }));
}

}  // namespace forge::loader
