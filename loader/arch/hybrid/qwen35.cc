// qwen3next, qwen35, qwen35moe: Qwen3-Next and Qwen 3.5 and 3.6. Gated delta nets in most layers, full attention in
// each fourth (or as the file lists them). Attention has a gate in its query projection, QK-norm for each head and
// partial RoPE in kHalves mode. The norm before the FFN is called post_attention_norm. Sources: arXiv 2412.06464,
// 2505.09388, and the published configurations.

#include "loader/arch/experts.h"
#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// True for the layers with a gated delta net.
std::vector<bool> delta_layers(const DecoderBuilder& model) {
  const auto layers = static_cast<std::size_t>(model.params().layers);
  if (const auto key = model.key("attention.recurrent_layers"); model.file().has(key))
    return *model.file().find_per_layer<bool>(key, layers);
  const std::int64_t period = positive(model.file(), model.key("full_attention_interval"), 4);
  std::vector<bool> out(layers);
  for (std::size_t i = 0; i < layers; ++i) out[i] = (static_cast<std::int64_t>(i) + 1) % period != 0;
  return out;
}

}  // namespace

PortableModel build_qwen35(const Gguf& file) {
  DecoderBuilder model(file);
  (void)model.rope_has_sections();  // accepted: no effect on text
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  spec.gate = AttentionGate::kInQuery;
  const auto delta = delta_layers(model);
  GatedDeltaNet net(model);
  const auto experts = expert_params(model).count > 0
                           ? moe_ffn(model, read_routing(model, ir::RoutingNormalization::kChosen),
                                     ir::Activation::kSilu, /*shared_gate=*/true)
                           : DecoderBuilder::Ffn{};
  const LayerSpec parts{.ffn_norm = "post_attention_norm"};
  const auto mixer = [&](ir::Value rows, std::int64_t layer) {
    return delta[static_cast<std::size_t>(layer)] ? net(rows, layer) : model.attention(rows, layer, spec);
  };
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.mixer_layer(x, layer, mixer, parts, experts);
  }));
}

}  // namespace forge::loader
