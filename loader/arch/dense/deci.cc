// deci: models of NVIDIA that a search made of Llama 3 (Llama Nemotron 51B, Super, Ultra; DeciLM). As llama, with
// layers that differ in KV heads and FFN width, and lack attention or the FFN, with its norm and residual; in some one
// matrix takes the place of attention. Source: arXiv 2411.19146, 2503.18908 and the published configurations.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_deci(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(ir::RopeMode::kPairs);
  const auto width = model.params().width;
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const auto& shape = model.shape(layer);
    if (shape.heads > 0) {
      const ir::Value rows = model.norm(x, model.at(layer, "attn_norm"));
      x = model.residual(x, shape.kv_heads > 0 ? model.attention(rows, layer, spec)
                                               : model.linear(rows, model.at(layer, "attn_output"), width, width));
    }
    if (shape.ffn_width == 0) return x;
    const ir::Value rows = model.norm(x, model.at(layer, "ffn_norm"));
    return model.residual(x, model.gated_ffn(rows, layer, ir::Activation::kSilu));
  }));
}

}  // namespace forge::loader
