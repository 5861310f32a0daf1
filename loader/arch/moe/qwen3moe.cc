// qwen3moe: Qwen 3's mixtures of experts. Qwen 3 with experts in every layer; a token's weights are a softmax over the
// ones that it goes to. qwen3vlmoe: what Qwen3-VL does with text. Source: arXiv 2505.09388 and the published
// configurations.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_qwen3moe(const Gguf& file) {
  DecoderBuilder model(file);
  if (model.family() == "qwen3vlmoe") (void)model.rope_has_sections();  // a text's turn alike
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  const auto experts = mixture(model, {.share = ir::RouteShare::kChosen});
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, experts);
  }));
}

}  // namespace forge::loader
