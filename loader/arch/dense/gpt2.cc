// gpt2, starcoder, bloom, mpt, jais: decoders with LayerNorm, fused q, k and v and no RoPE; an ungated FFN with GELU.
//   gpt2, starcoder  positions are learned: a row of position_embd is added to each token's embedding.
//                    starcoder has one KV head (multi-query attention)
//   bloom            ALiBi, and a norm after the embedding
//   mpt              ALiBi, q, k and v limited to +-clamp_kqv if the file says so, no biases in the published models
//   jais             ALiBi, an FFN gated with SiLU, and muP (arXiv 2203.03466): scores are divided by the columns of a
//                    head, not by their root. muP's scales on embedding and logits are in the file's weights
// Sources: arXiv 2305.06161, 2211.05100, 2308.16149, 2108.12409 and the published configurations.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// The embedding of the step's tokens, with what the family adds for their positions.
ir::Value embed(DecoderBuilder& model) {
  const ir::Value x = model.embed();
  if (model.family() == "bloom") return model.norm(x, "token_embd_norm");
  return model.family() == "mpt" || model.family() == "jais" ? x : model.add_positions(x);
}

}  // namespace

PortableModel build_gpt2(const Gguf& file) {
  constexpr float kAlibiOfBloom = 8;
  DecoderBuilder model(file, NormKind::kLayer);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.use_rope = false;
  if (model.family() == "bloom") spec.alibi = kAlibiOfBloom;
  const bool jais = model.family() == "jais";
  if (jais || model.family() == "mpt") spec.alibi = model.feature("attention.max_alibi_bias", 0);
  if (jais) spec.scale = 1.0F / static_cast<float>(spec.head_dim);
  if (model.family() == "mpt") spec.clamp_qkv = model.feature("attention.clamp_kqv", 0);
  const auto ffn = [&](ir::Value x, std::int64_t layer) {
    return jais ? model.gated_ffn(x, layer, ir::Activation::kSilu) : model.ungated_ffn(x, layer, ir::Activation::kGelu);
  };
  return model.finish(model.each_layer(
      embed(model), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, {}, ffn); }));
}

}  // namespace forge::loader
