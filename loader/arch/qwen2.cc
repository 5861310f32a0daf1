// qwen2: Qwen 1.5, 2 and 2.5. Like llama, with RoPE on halves and a bias on q, k and v.
// Source: arXiv 2407.10671, 2412.15115.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_qwen2(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(ir::RopeMode::kHalves);
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec); }));
}

}  // namespace forge::loader
