// gemma2: Gemma 2. As Gemma 1, with sandwich norm, soft-caps on scores and logits, and a sliding window in every other
// layer. The softmax scale of the 27B model is 1/sqrt(width / heads) instead of 1/sqrt(head_dim).
// Source: arXiv 2408.00118.

#include <cmath>

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_gemma2(const Gguf& file) {
  DecoderBuilder model(file);
  const auto& p = model.params();
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  constexpr std::int64_t kLayersOf27B = 46;
  if (p.layers == kLayersOf27B) spec.scale = model.width_scale();
  spec.softcap = model.feature("attn_logit_softcapping", 50);
  auto local = spec;
  local.window = model.sliding_window(4096);
  const auto attention = model.alternate(local, spec, 2);
  const LayerSpec parts{.activation = ir::Activation::kGelu, .post_norm = true};
  const float scale = std::sqrt(static_cast<float>(p.width));
  const auto x = model.each_layer(model.embed(scale), [&](ir::Value in, std::int64_t layer) {
    return model.decoder_layer(in, layer, attention(layer), parts);
  });
  return model.finish(x, 1, model.feature("final_logit_softcapping", 30));
}

}  // namespace forge::loader
