// command-r: Command R and R+. cohere2: Command R7B and Command A. LayerNorm without bias; parallel residual: attention
// and the FFN read the same norm and both are added to the input; the logits have a scale. R+ has QK-norm with a weight
// row for each head. cohere2 repeats four layers: three with RoPE and a sliding window, one with full attention and no
// RoPE (NoPE). Source: docs.cohere.com and the published configurations of Command R and R7B.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_command_r(const Gguf& file) {
  DecoderBuilder model(file, NormKind::kLayer);
  auto spec = model.attention_spec(ir::RopeMode::kPairs);
  if (model.has("blk.0.attn_q_norm.weight")) spec.qk_norm = QkNorm::kEachHead;
  auto global = spec, local = spec;
  if (model.family() == "cohere2") {
    global.use_rope = false;
    local.window = model.sliding_window();
  }
  const auto attention = model.alternate(local, global, 4);
  const float logit_scale = model.feature("logit_scale", 1);
  const auto x = model.each_layer(model.embed(), [&](ir::Value in, std::int64_t layer) {
    const ir::Value normed = model.norm(in, model.at(layer, "attn_norm"));
    const ir::Value attended = model.residual(in, model.attention(normed, layer, attention(layer)));
    return model.residual(attended, model.gated_ffn(normed, layer, ir::Activation::kSilu));
  });
  return model.finish(x, logit_scale == 0 ? 1 : logit_scale);
}

}  // namespace forge::loader
