// llama: Llama 1 to 3.3, SmolLM, Mistral, Mixtral, Yi and other models published under this name. Pre-norm decoder with
// grouped-query attention, RoPE in kPairs mode (GGUF files contain q and k permuted for it) and a SwiGLU FFN or a
// mixture of such experts, whose routing weights are a softmax over the chosen ones. ernie4_5, internlm2 and xverse are
// the same under other names. mistral3: Ministral 3, which scales queries by their position. baichuan: Baichuan 1
// and 2. Source: arXiv 2302.13971, 2407.21783, 2401.04088, 2403.17297, 2309.10305 and the published configurations;
// tensor names: ggml/docs/gguf.md.

#include "loader/arch/blocks.h"
#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

// Baichuan's 13B model has ALiBi instead of RoPE; in its files nothing but the number of layers tells.
constexpr std::int64_t kLayersOfBaichuan13B = 40;
constexpr float kAlibiOfBaichuan = 8;

/// Reads the scaling of queries by position and the multiplier that removes YaRN's factor on cos and sin again.
/// Ollama's converter uses other keys for both.
void read_ministral(DecoderBuilder& model, AttentionSpec& spec) {
  const auto& freqs = spec.rope.freqs;
  spec.temperature = {.scale = model.feature("attention.temperature_scale", model.feature("rope.scaling_beta", 0)),
                      .length = freqs.original_context};
  const float multiplier =
      model.feature("rope.scaling.yarn_log_multiplier", model.feature("rope.scaling.mscale_all_dim", 0));
  if (freqs.scaling == ir::RopeScaling::kYarn && freqs.factor > 1)
    spec.rope.magnitude /= yarn_magnitude(freqs.factor, multiplier);
}

}  // namespace

PortableModel build_llama(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kPairs);
  if (model.family() == "mistral3") read_ministral(model, spec);
  if (model.family() == "baichuan" && model.params().layers == kLayersOfBaichuan13B) {
    spec.use_rope = false;
    spec.alibi = kAlibiOfBaichuan;
  }
  const auto ffn = expert_params(model).count > 0 ? moe_ffn(model, {.share = ir::RoutingNormalization::kChosen})
                                                  : DecoderBuilder::Ffn{};
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, {}, ffn); }));
}

}  // namespace forge::loader
