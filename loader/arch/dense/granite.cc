// granite and granitemoe: Granite 3. As llama, with scales on the embedding, the softmax, each block's output and the
// logits. Routing weights are a softmax over the chosen experts; later models have a shared expert. minicpm: MiniCPM 1
// and 2, whose early files lack the scales: the defaults here are those of the published models.
// Source: Granite 3.0 technical report (IBM, 2024); the scales are those of muP, arXiv 2203.03466.

#include <cmath>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_granite(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kPairs);
  spec.use_rope = file.get<bool>(model.key("rope.scaling.finetuned"), true);  // false: no RoPE, in Granite's files
  const auto& p = model.params();
  const auto factor = [&](std::string_view suffix, float of_minicpm) {
    const float fallback = model.family() == "minicpm" ? of_minicpm : 1.0F;
    const float value = model.feature(suffix, fallback);
    return value == 0 ? fallback : value;
  };
  const LayerSpec parts{.residual_scale = factor("residual_scale", 1.4F / std::sqrt(static_cast<float>(p.layers)))};
  const auto ffn = expert_params(model).count > 0 ? moe_ffn(model, {.share = ir::RoutingNormalization::kChosen})
                                                  : DecoderBuilder::Ffn{};
  const auto x = model.each_layer(model.embed(factor("embedding_scale", 12)), [&](ir::Value in, std::int64_t layer) {
    return model.decoder_layer(in, layer, spec, parts, ffn);
  });
  return model.finish(x, 1.0F / factor("logit_scale", static_cast<float>(p.width) / 256));
}

}  // namespace forge::loader
