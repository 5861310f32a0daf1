// granite and granitemoe: Granite 3. Like llama, with factors: on the embedding, on scores, on what each block adds to
// the residual stream; logits are divided by one. Experts are weighted by a softmax over the chosen ones; later models
// have a network for all tokens beside them. minicpm: MiniCPM 1 and 2, whose early files leave the factors to the
// reader. Source: Granite 3.0 technical report (IBM, 2024); the factors are muP's, arXiv 2203.03466.

#include <cmath>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_granite(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kPairs);
  spec.rotates = file.get<bool>(model.key("rope.scaling.finetuned"), true);  // Granite's name for RoPE at all
  const auto& p = model.params();
  const auto factor = [&](std::string_view suffix, float of_minicpm) {
    const float unsaid = model.family() == "minicpm" ? of_minicpm : 1.0F;
    const float value = model.feature(suffix, unsaid);
    return value == 0 ? unsaid : value;
  };
  const LayerSpec parts{.residual_scale = factor("residual_scale", 1.4F / std::sqrt(static_cast<float>(p.layers)))};
  const auto network =
      expert_params(model).count > 0 ? mixture(model, {.share = ir::RouteShare::kChosen}) : DecoderBuilder::Network{};
  const auto x = model.each_layer(model.embed(factor("embedding_scale", 12)), [&](ir::Value in, std::int64_t layer) {
    return model.decoder_layer(in, layer, spec, parts, network);
  });
  return model.finish(x, 1.0F / factor("logit_scale", static_cast<float>(p.width) / 256));
}

}  // namespace forge::loader
