// minimax-m2: MiniMax M2 and M2.1. RMSNorm over all heads of q together and of k together, RoPE on half of each head's
// dimensions, as halves; experts in every layer, chosen by sigmoids with a bias and weighted by their shares of the
// chosen ones' sum. Source: the published configuration.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_minimax_m2(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kRow;
  const auto experts = mixture(model, routing(model, ir::RouteShare::kChosen));
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, experts);
  }));
}

}  // namespace forge::loader
