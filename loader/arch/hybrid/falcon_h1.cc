// falcon-h1: Falcon-H1. Attention with RoPE in kHalves mode and Mamba-2 side by side on the same rows of each layer.
// The factors of the published configuration are folded into the file's weights. Source: arXiv 2507.22448.

#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_falcon_h1(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(ir::RopeMode::kHalves);
  Mamba2 mamba(model);
  const auto& p = model.params();
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const ir::Value rows = model.norm(x, model.at(layer, "attn_norm"));
    x = model.residual(x, model.ir().add(model.attention(rows, layer, spec), mamba(rows, layer)));
    // This tensor's name has no ".weight".
    const ir::Value normed = model.ir().rms_norm(x, model.vector(model.at(layer, "ffn_norm"), p.width), p.norm_eps);
    return model.residual(x, model.gated_ffn(normed, layer, ir::Activation::kSilu));
  }));
}

}  // namespace forge::loader
