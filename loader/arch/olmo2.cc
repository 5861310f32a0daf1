// olmo2: OLMo 2. Norms stand behind attention and the network, not in front of them; q and k are normalised over all
// heads together. RoPE on halves.
// Source: arXiv 2501.00656.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_olmo2(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kRow;
  const LayerSpec parts{.norms_before = false, .norms_after = true};
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, parts); }));
}

}  // namespace forge::loader
