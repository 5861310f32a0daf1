// glm4moe: GLM-4.5 to 4.7 and Air, GLM-4.5V (text). RoPE in kHalves mode on half of each head; bias on q, k and v;
// QK-norm for each head in the larger models; dense first layers, then experts with sigmoid routing and a bias, and a
// shared expert. The tensor of the FFN's pre-norm is called post_attention_norm. Source: arXiv 2508.06471 and the
// published configurations.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_glm4moe(const Gguf& file) {
  DecoderBuilder model(file);
  (void)model.rope_has_sections();  // accepted: no effect on text
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  if (model.has("blk.0.attn_q_norm.weight")) spec.qk_norm = QkNorm::kHead;
  const LayerSpec parts{.ffn_norm = "post_attention_norm"};
  const auto ffn = dense_then_moe_ffn(model, read_routing(model));
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, parts, ffn); }));
}

}  // namespace forge::loader
