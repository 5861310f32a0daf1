// glm4: GLM-4-0414. Norms in front of the blocks and behind them, RoPE on adjacent pairs of half of each head (halves
// in models that see, whose rows are ordered so), bias on q, k and v, gate and up in one tensor. chatglm: GLM-4-9B,
// without the norms behind the blocks. Source: arXiv 2406.12793 and the published configurations.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_glm4(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(model.rope_has_sections() ? ir::RopeMode::kHalves : ir::RopeMode::kPairs);
  const LayerSpec parts{.norms_after = model.family() == "glm4"};
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, parts); }));
}

}  // namespace forge::loader
