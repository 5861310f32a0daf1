// gemma: Gemma 1. Embeddings times the square root of the width, GEGLU, RoPE on halves. GGUF files hold norm weights
// with the 1 that the published ones leave out. Source: arXiv 2403.08295.

#include <cmath>

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_gemma(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(ir::RopeMode::kHalves);
  const LayerSpec parts{.activation = ir::Activation::kGelu};
  const float scale = std::sqrt(static_cast<float>(model.params().width));
  return model.finish(model.each_layer(
      model.embed(scale), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, parts); }));
}

}  // namespace forge::loader
