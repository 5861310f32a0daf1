// qwen2: Qwen 1.5, 2 and 2.5. Like llama, with RoPE on halves and a bias on q, k and v.
// exaone, pangu-embedded: EXAONE 3 and openPangu Embedded, which differ by biases. qwen2vl: what Qwen2-VL and 2.5-VL do
// with text. Source: arXiv 2407.10671, 2412.15115, 2502.13923.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_qwen2(const Gguf& file) {
  DecoderBuilder model(file);
  if (model.family() == "qwen2vl") (void)model.rope_has_sections();  // a text's turn alike
  const auto spec = model.attention_spec(ir::RopeMode::kHalves);
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec); }));
}

}  // namespace forge::loader
