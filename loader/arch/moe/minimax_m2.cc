// minimax-m2: MiniMax M2 and M2.1. QK-norm over all heads together; RoPE in kHalves mode on half of each head; experts
// in every layer with sigmoid routing and a bias; routing weights are the scores divided by their sum over the chosen
// experts. Source: the published configuration.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_minimax_m2(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kRow;
  const auto experts = moe_ffn(model, read_routing(model, ir::RoutingNormalization::kChosen));
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, experts);
  }));
}

}  // namespace forge::loader
