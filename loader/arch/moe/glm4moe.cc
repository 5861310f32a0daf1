// glm4moe: GLM-4.5 to 4.7 and Air, GLM-4.5V (text). RoPE on half of each head's dimensions, as halves; bias on q, k and
// v; norms of each head of q and k in the larger models; dense layers, then experts chosen by sigmoids with a bias and
// a network for all tokens. Its files name the network's norm post_attention_norm. Source: arXiv 2508.06471 and the
// published configurations.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_glm4moe(const Gguf& file) {
  DecoderBuilder model(file);
  (void)model.rope_has_sections();
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  if (model.has("blk.0.attn_q_norm.weight")) spec.qk_norm = QkNorm::kHead;
  const LayerSpec parts{.ffn_norm = "post_attention_norm"};
  const auto network = dense_then_mixture(model, routing(model));
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, parts, network);
  }));
}

}  // namespace forge::loader
