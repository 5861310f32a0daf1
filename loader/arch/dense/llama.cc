// llama: Llama 1 to 3.2, SmolLM, Mistral, Mixtral, Yi and whatever else is published under the name. Pre-norm decoder
// with RoPE on adjacent pairs (GGUF files hold q and k permuted for it), grouped-query attention and SwiGLU, alone or
// of the best experts, whose weights are a softmax over the chosen ones. ernie4_5, internlm2, xverse: the same under
// names of their own. mistral3: Ministral 3, whose queries grow with their position. Source: arXiv 2302.13971,
// 2407.21783, 2401.04088, 2403.17297 and the published configurations; tensor names: ggml/docs/gguf.md.

#include "loader/arch/blocks.h"
#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// Queries that grow with their position, and a multiplier that takes YaRN's factor on cos and sin back. Ollama's
/// converters have names of their own for both.
void read_ministral(DecoderBuilder& model, AttentionSpec& spec) {
  spec.temperature = model.feature("attention.temperature_scale", model.feature("rope.scaling_beta", 0));
  model.refuse_if(spec.temperature != 0 && model.params().rotary_dims != model.params().head_dim,
                  "a temperature and heads that are rotated in part");
  const auto& freqs = spec.rope.freqs;
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
  const auto network =
      expert_params(model).count > 0 ? mixture(model, {.share = ir::RouteShare::kChosen}) : DecoderBuilder::Network{};
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, network);
  }));
}

}  // namespace forge::loader
