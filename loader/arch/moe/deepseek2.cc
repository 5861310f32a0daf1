// deepseek2: DeepSeek V2, V2 Lite, V3, R1 and models of the same architecture. Multi-head latent attention; dense first
// layers, then mixture of experts with shared experts; V3 has sigmoid routing with a bias and group-limited routing.
// mistral4: Mistral 4, the same with queries scaled by their position. Sources: arXiv 2405.04434, 2412.19437 and the
// published configurations.

#include "loader/arch/experts.h"
#include "loader/arch/latent.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// Mistral 4 scales queries from multiples of a length of its own on, else of the context before its extension.
TemperatureSpec read_temperature(DecoderBuilder& model) {
  if (model.family() != "mistral4") return {};
  return {.scale = model.feature("attention.temperature_scale", 0),
          .length = positive(model.file(), model.key("attention.temperature_length"),
                             model.params().rope.freqs.original_context)};
}

}  // namespace

PortableModel build_deepseek2(const Gguf& file) {
  DecoderBuilder model(file);
  LatentAttention attention(model, read_temperature(model));
  const auto ffn = dense_then_moe_ffn(model, read_routing(model));
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.mixer_layer(x, layer, std::ref(attention), {}, ffn);
  }));
}

}  // namespace forge::loader
