// Some dense layers, then experts with a network for all tokens beside them. deepseek: DeepSeek MoE, RoPE on adjacent
// pairs (files hold q and k permuted for it), shares of a softmax over all experts. dots1 and bailingmoe2 (Ling 2.0):
// RoPE on halves behind an RMSNorm of each head of q and k, routing by sigmoids with a bias.
// Sources: arXiv 2401.06066, 2506.05767, 2510.22115 and the published configurations.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_deepseek(const Gguf& file) {
  DecoderBuilder model(file);
  const bool first = model.family() == "deepseek";
  auto spec = model.attention_spec(first ? ir::RopeMode::kPairs : ir::RopeMode::kHalves);
  if (!first) spec.qk_norm = QkNorm::kHead;
  const auto network = dense_then_mixture(model, routing(model));
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, network);
  }));
}

}  // namespace forge::loader
