// Decoders of LayerNorms and plain networks whose blocks stand side by side: attention and the network read the same
// rows and are added together. gptneox: GPT-NeoX and Pythia, a norm for each block, some models one block after the
// other. phi2: one norm for both. falcon: the same, two norms in the larger models. RoPE on halves, GELU.
// Sources: arXiv 2204.06745, 2304.01373, 2311.16867 and the published configurations.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_gptneox(const Gguf& file) {
  DecoderBuilder model(file, NormKind::kLayer);
  const auto spec = model.attention_spec(ir::RopeMode::kHalves);
  const bool own_norm = model.family() == "gptneox";
  const bool parallel = file.get<bool>(model.key("use_parallel_residual"), true);
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const auto norm = [&](ir::Value rows, const char* stem) { return model.norm(rows, model.at(layer, stem)); };
    const ir::Value normed = norm(x, "attn_norm");
    const bool two = model.has(model.at(layer, "attn_norm_2.weight"));
    const ir::Value attended = model.residual(x, model.attention(two ? norm(x, "attn_norm_2") : normed, layer, spec));
    const ir::Value in = own_norm ? norm(parallel ? x : attended, "ffn_norm") : normed;
    return model.residual(attended, model.plain_ffn(in, layer, ir::Activation::kGelu));
  }));
}

}  // namespace forge::loader
