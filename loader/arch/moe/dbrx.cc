// dbrx: DBRX. LayerNorm without bias; q, k and v are one tensor, whose results are clamped; RoPE in kHalves mode;
// experts in every layer; routing weights are the scores divided by their sum over the chosen experts. The tensor of
// the FFN's pre-norm is called attn_output_norm. Source: the published configuration and model description (Databricks,
// 2024).

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_dbrx(const Gguf& file) {
  DecoderBuilder model(file, NormKind::kLayer);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.clamp_qkv = model.feature("attention.clamp_kqv", 0);
  const LayerSpec parts{.ffn_norm = "attn_output_norm"};
  const auto experts = moe_ffn(model, {.share = ir::RoutingNormalization::kChosen});
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, parts, experts);
  }));
}

}  // namespace forge::loader
