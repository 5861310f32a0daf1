// glm4: GLM-4-0414. Sandwich norm; RoPE on half of each head, in kPairs mode (kHalves in vision models, whose
// converters order the rows for it); bias on q, k and v; gate and up in one tensor. chatglm: GLM-4-9B, the same with
// pre-norm only. Source: arXiv 2406.12793 and the published configurations.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_glm4(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(model.rope_has_sections() ? ir::RopeMode::kHalves : ir::RopeMode::kPairs);
  const LayerSpec parts{.post_norm = model.family() == "glm4"};
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, parts); }));
}

}  // namespace forge::loader
