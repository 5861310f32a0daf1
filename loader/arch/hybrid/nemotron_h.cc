// nemotron_h, nemotron_h_moe: Nemotron-H, Nemotron Nano 2 and Nemotron 3. Each layer is one block with a norm and a
// residual: attention without positional encoding where the layer has KV heads, else an FFN where it has a width, else
// Mamba-2. FFNs and experts have squared ReLU and no gate. The routed experts of some models work on a latent row, to
// which ffn_latent_down projects; router and shared expert read the layer's own rows. Sources: arXiv 2504.03624,
// 2508.14444.

#include "loader/arch/experts.h"
#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_nemotron_h(const Gguf& file) {
  constexpr auto kActivation = ir::Activation::kReluSquared;
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.use_rope = false;
  Mamba2 mamba(model);
  ExpertSpec experts{.activation = kActivation, .shared_activation = kActivation, .gated = false};
  const bool moe = expert_params(model).count > 0;
  const auto route = moe ? read_routing(model) : ir::RouteAttrs{};
  if (file.has(model.key("moe_latent_size"))) experts.latent = positive(file, model.key("moe_latent_size"));
  const auto block = [&](ir::Value rows, std::int64_t layer) {
    const auto& shape = model.shape(layer);
    if (shape.kv_heads > 0) return model.attention(rows, layer, spec);
    if (shape.ffn_width == 0) return mamba(rows, layer);
    return moe && model.has(model.at(layer, "ffn_gate_inp.weight")) ? moe_layer(model, rows, layer, route, experts)
                                                                    : model.ungated_ffn(rows, layer, kActivation);
  };
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.residual(x, block(model.norm(x, model.at(layer, "attn_norm")), layer));
  }));
}

}  // namespace forge::loader
