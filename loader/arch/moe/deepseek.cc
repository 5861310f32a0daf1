// deepseek, dots1, bailingmoe2: dense first layers, then mixture of experts with a shared expert.
//   deepseek            DeepSeek MoE: RoPE in kPairs mode (GGUF files contain q and k permuted for it); routing weights
//                       are a softmax over all experts
//   dots1, bailingmoe2  dots.llm1 and Ling 2.0: QK-norm for each head followed by RoPE in kHalves mode; sigmoid routing
//                       with a bias
// Sources: arXiv 2401.06066, 2506.05767, 2510.22115 and the published configurations.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_deepseek(const Gguf& file) {
  DecoderBuilder model(file);
  const bool first = model.family() == "deepseek";
  auto spec = model.attention_spec(first ? ir::RopeMode::kPairs : ir::RopeMode::kHalves);
  if (!first) spec.qk_norm = QkNorm::kHead;
  const auto ffn = dense_then_moe_ffn(model, read_routing(model));
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, {}, ffn); }));
}

}  // namespace forge::loader
