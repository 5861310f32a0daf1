// stablelm: StableLM 3B, Zephyr and StableLM 2. orion: Orion 14B. LayerNorm; RoPE in kHalves mode on a part of each
// head (on all of it in Orion). Some models have QK-norm with a weight row for each head. Models without a norm for the
// FFN are parallel: the FFN reads the norm of attention. Source: arXiv 2402.17834, 2401.12246.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_stablelm(const Gguf& file) {
  DecoderBuilder model(file, NormKind::kLayer);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  if (model.has("blk.0.attn_q_norm.weight")) spec.qk_norm = QkNorm::kEachHead;
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const ir::Value normed = model.norm(x, model.at(layer, "attn_norm"));
    x = model.residual(x, model.attention(normed, layer, spec));
    const bool parallel = !model.has(model.at(layer, "ffn_norm.weight"));
    const ir::Value in = parallel ? normed : model.norm(x, model.at(layer, "ffn_norm"));
    return model.residual(x, model.gated_ffn(in, layer, ir::Activation::kSilu));
  }));
}

}  // namespace forge::loader
