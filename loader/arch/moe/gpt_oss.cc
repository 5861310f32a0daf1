// gpt-oss: gpt-oss-20b and -120b. Every other layer has a sliding window, every head a sink; YaRN on halves; biases on
// all projections, router and experts included; experts weighted by a softmax over the chosen ones, with a clamped GLU.
// The norm in front of the experts is called post_attention_norm. Source: arXiv 2508.10925.

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
  const auto experts = mixture(model, {.share = ir::RouteShare::kChosen}, ir::Activation::kClampedSwish);
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, attention(layer), parts, experts);
  }));
}

}  // namespace forge::loader
