// hunyuan-dense and hunyuan-moe: Hunyuan 0.5B to 7B and A13B. As llama, with RoPE in kHalves mode followed by QK-norm
// for each head. Routing weights are a softmax over the chosen experts; there is a shared expert. Converters have
// already applied the NTK factor to the RoPE base in the file. Source: Hunyuan-A13B technical report (Tencent, 2025)
// and the published configurations.

#include <fmt/format.h>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_hunyuan(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  spec.norm_after_rope = true;
  const float alpha = model.feature("rope.scaling.alpha", 0);
  model.refuse_if(alpha > 0, fmt::format("'rope.scaling.alpha' = {}", alpha));
  DecoderBuilder::Ffn ffn;
  if (model.family() == "hunyuan-moe") ffn = moe_ffn(model, {.share = ir::RoutingNormalization::kChosen});
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, {}, ffn); }));
}

}  // namespace forge::loader
