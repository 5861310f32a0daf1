// ernie4_5-moe: ERNIE 4.5's mixtures of experts. Like llama; dense layers, then experts chosen by a softmax to which a
// bias is added for the choice, weighted by their shares of the chosen ones' sum, and a network for all tokens.
// Source: ERNIE 4.5 technical report (Baidu, 2025) and the published configurations.

#include <fmt/format.h>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_ernie4_5_moe(const Gguf& file) {
  DecoderBuilder model(file);
  const auto step = file.get<std::int64_t>(model.key("interleave_moe_layer_step"), 1);
  model.refuse_if(step != 1, fmt::format("'interleave_moe_layer_step' = {}", step));
  const auto spec = model.attention_spec(ir::RopeMode::kPairs);
  const auto network = dense_then_mixture(model, {.share = ir::RouteShare::kChosen});
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, network);
  }));
}

}  // namespace forge::loader
