// granitehybrid: Granite 4.0. Mamba-2 in the layers without KV heads, attention in the others, mostly without RoPE;
// Granite's scales on the embedding, the softmax, each block's output and the logits. FFNs are dense or mixtures of
// experts with a shared expert. Sources: arXiv 2405.21060 and the published configurations.

#include "loader/arch/experts.h"
#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_granite_hybrid(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kPairs);
  spec.use_rope = file.get<bool>(model.key("rope.scaling.finetuned"), true);  // false: no RoPE, in Granite's files
  const auto factor = [&](std::string_view suffix) {
    const float value = model.feature(suffix, 1);
    return value == 0 ? 1 : value;
  };
  const LayerSpec parts{.residual_scale = factor("residual_scale")};
  Mamba2 mamba(model);
  const auto experts = expert_params(model).count > 0
                           ? moe_ffn(model, read_routing(model, ir::RoutingNormalization::kChosen))
                           : DecoderBuilder::Ffn{};
  const auto mixer = [&](ir::Value rows, std::int64_t layer) {
    return is_recurrent(model, layer) ? mamba(rows, layer) : model.attention(rows, layer, spec);
  };
  const auto x = model.each_layer(model.embed(factor("embedding_scale")), [&](ir::Value in, std::int64_t layer) {
    return model.mixer_layer(in, layer, mixer, parts, experts);
  });
  return model.finish(x, 1.0F / factor("logit_scale"));
}

}  // namespace forge::loader
