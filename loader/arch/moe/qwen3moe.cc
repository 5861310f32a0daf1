// qwen3moe: the mixture-of-experts models of Qwen 3. As qwen3, with experts in every layer; routing weights are a
// softmax over the chosen experts. qwen3vlmoe: the text part of Qwen3-VL. Source: arXiv 2505.09388 and the published
// configurations.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_qwen3moe(const Gguf& file) {
  DecoderBuilder model(file);
  if (model.family() == "qwen3vlmoe") (void)model.rope_has_sections();  // accepted: no effect on text
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  const auto experts = moe_ffn(model, {.share = ir::RoutingNormalization::kChosen});
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, experts);
  }));
}

}  // namespace forge::loader
