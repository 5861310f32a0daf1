// jamba: Jamba 1.5 to 1.7 and Jamba Reasoning. Mamba-1 with norms on dt, B and C in the layers without KV heads,
// attention without positional encoding in the others. A layer with a router has a mixture of experts, whose routing
// weights are not renormalised, the others a dense FFN. Source: arXiv 2403.19887.

#include "loader/arch/experts.h"
#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_jamba(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.use_rope = false;
  Mamba mamba(model);
  const auto experts = expert_params(model).count > 0 ? moe_ffn(model, read_routing(model)) : DecoderBuilder::Ffn{};
  const auto mixer = [&](ir::Value rows, std::int64_t layer) {
    return is_recurrent(model, layer) ? mamba(rows, layer) : model.attention(rows, layer, spec);
  };
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const bool routed = experts && model.has(model.at(layer, "ffn_gate_inp.weight"));
    return model.mixer_layer(x, layer, mixer, {}, routed ? experts : DecoderBuilder::Ffn{});
  }));
}

}  // namespace forge::loader
