// gptneox, phi2, falcon, gptj: decoders with LayerNorm, an ungated FFN with GELU and RoPE, whose attention and FFN are
// parallel: both read the layer's normalised input and are added to it.
//   gptneox  GPT-NeoX and Pythia: a norm each for attention and FFN; some models are sequential instead of parallel
//   phi2     Phi 1 to 2: one norm for both
//   falcon   Falcon: one norm for both; larger models have a second one for attention (attn_norm_2)
//   gptj     GPT-J: one norm for both; RoPE in kPairs mode, in the others in kHalves mode
// Sources: arXiv 2204.06745, 2304.01373, 2311.16867 and the published configurations.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_gptneox(const Gguf& file) {
  DecoderBuilder model(file, NormKind::kLayer);
  const bool pairs = model.family() == "gptj";
  const auto spec = model.attention_spec(pairs ? ir::RopeMode::kPairs : ir::RopeMode::kHalves);
  const bool own_norm = model.family() == "gptneox";
  const bool parallel = file.get<bool>(model.key("use_parallel_residual"), true);
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const auto norm = [&](ir::Value rows, const char* stem) { return model.norm(rows, model.at(layer, stem)); };
    const ir::Value normed = norm(x, "attn_norm");
    const bool two = model.has(model.at(layer, "attn_norm_2.weight"));
    const ir::Value attended = model.residual(x, model.attention(two ? norm(x, "attn_norm_2") : normed, layer, spec));
    const ir::Value in = own_norm ? norm(parallel ? x : attended, "ffn_norm") : normed;
    return model.residual(attended, model.ungated_ffn(in, layer, ir::Activation::kGelu));
  }));
}

}  // namespace forge::loader
