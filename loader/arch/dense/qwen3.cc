// qwen3: Qwen 3. As llama, with QK-norm for each head (one weight for all heads) followed by RoPE in kHalves mode.
// qwen3vl: the text part of Qwen3-VL. Source: arXiv 2505.09388, 2511.21631.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_qwen3(const Gguf& file) {
  DecoderBuilder model(file);
  if (model.family() == "qwen3vl") (void)model.rope_has_sections();  // accepted: no effect on text
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec); }));
}

}  // namespace forge::loader
