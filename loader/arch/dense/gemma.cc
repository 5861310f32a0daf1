// gemma: Gemma 1. Embeddings are multiplied by sqrt(width); GEGLU; RoPE in kHalves mode. Gemma multiplies by 1 + weight
// in its norms; GGUF files already contain the 1. Source: arXiv 2403.08295.

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
