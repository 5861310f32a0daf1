// hunyuan-dense and hunyuan-moe: Hunyuan 0.5B to 7B and A13B. Like llama, with RoPE on halves and an RMSNorm of each
// head of q and k behind it; experts are weighted by a softmax over the chosen ones, and a network for all tokens
// stands beside them. Files hold RoPE's base with the models' NTK factor in it. Source: Hunyuan-A13B technical report
// (Tencent, 2025) and the published configurations.

#include <fmt/format.h>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_hunyuan(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  spec.norms_rotated = true;
  const float alpha = model.feature("rope.scaling.alpha", 0);
  model.refuse_if(alpha > 0, fmt::format("'rope.scaling.alpha' = {}", alpha));
  DecoderBuilder::Network network;
  if (model.family() == "hunyuan-moe") network = mixture(model, {.share = ir::RouteShare::kChosen});
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, network);
  }));
}

}  // namespace forge::loader
