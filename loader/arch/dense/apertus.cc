// apertus: Apertus 8B and 70B. As llama with QK-norm for each head, RoPE in kHalves mode, and an ungated FFN with
// xIELU, whose parameters are trained for each layer. Sources: arXiv 2509.14233, 2411.13010.

#include <cmath>

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"
#include "support/error.h"

namespace forge::loader {
namespace {

/// xIELU's parameters of each layer, from the trained values in the file (kernels/elementwise/xielu.h).
std::vector<elementwise::Parameters> xielu_parameters(const DecoderBuilder& model) {
  const auto layers = static_cast<std::size_t>(model.params().layers);
  const auto list = [&](const char* key) {
    auto values = model.file().find_per_layer<float>(key, layers);
    if (!values) contradiction(std::string("metadata key '") + key + "' is missing", "xIELU needs it for each layer");
    for (const float value : *values)
      if (!std::isfinite(value)) contradiction(std::string("metadata key '") + key + "' is not finite", {});
    return *std::move(values);
  };
  const auto alpha_n = list("xielu.alpha_n"), alpha_p = list("xielu.alpha_p"), beta = list("xielu.beta"),
             eps = list("xielu.eps");
  const auto softplus = [](float x) { return x > 20 ? x : std::log1p(std::exp(x)); };
  std::vector<elementwise::Parameters> out;
  for (std::size_t i = 0; i < layers; ++i)
    out.push_back({beta[i] + softplus(alpha_n[i]), softplus(alpha_p[i]), beta[i], eps[i]});
  return out;
}

}  // namespace

PortableModel build_apertus(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  const auto parameters = xielu_parameters(model);
  const auto ffn = [&](ir::Value x, std::int64_t layer) {
    return model.ungated_ffn(x, layer, ir::Activation::kXielu, parameters[static_cast<std::size_t>(layer)]);
  };
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, {}, ffn); }));
}

}  // namespace forge::loader
