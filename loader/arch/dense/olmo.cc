// olmo: OLMo 1. As llama with LayerNorm that has neither weight nor bias; q, k and v are limited to +-clamp_kqv if the
// file says so (7B). Source: arXiv 2402.00838.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_olmo(const Gguf& file) {
  DecoderBuilder model(file, NormKind::kUnitLayer);
  auto spec = model.attention_spec(ir::RopeMode::kPairs);
  spec.clamp_qkv = model.feature("attention.clamp_kqv", 0);
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec); }));
}

}  // namespace forge::loader
