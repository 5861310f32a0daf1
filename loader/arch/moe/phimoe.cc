// phimoe: Phi 3.5 MoE. As phi3, with biases on all projections of attention, on the norms (RMSNorm, as published files
// are run) and on the logits; experts in every layer; routing weights are a softmax over the chosen experts.
// Source: arXiv 2404.14219 and the published configuration.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_phimoe(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.window = model.sliding_window();
  const auto experts = moe_ffn(model, {.share = ir::RoutingNormalization::kChosen});
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, experts);
  }));
}

}  // namespace forge::loader
