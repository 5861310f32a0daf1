// starcoder2: StarCoder 2. LayerNorm and projections with biases; ungated FFN with GELU; a sliding window if the
// file has one. Source: arXiv 2402.19173.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_starcoder2(const Gguf& file) {
  DecoderBuilder model(file, NormKind::kLayer);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.window = model.sliding_window();
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    x = model.residual(x, model.attention(model.norm(x, model.at(layer, "attn_norm")), layer, spec));
    return model.residual(x,
                          model.ungated_ffn(model.norm(x, model.at(layer, "ffn_norm")), layer, ir::Activation::kGelu));
  }));
}

}  // namespace forge::loader
