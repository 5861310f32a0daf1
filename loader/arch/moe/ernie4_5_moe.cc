// ernie4_5-moe: the mixture-of-experts models of ERNIE 4.5. As llama, with dense first layers, then experts and a
// shared expert. Experts are chosen by softmax score plus a bias; routing weights are the scores divided by their sum
// over the chosen experts. Source: ERNIE 4.5 technical report (Baidu, 2025) and the published configurations.

#include <fmt/format.h>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_ernie4_5_moe(const Gguf& file) {
  DecoderBuilder model(file);
  const auto step = file.get<std::int64_t>(model.key("interleave_moe_layer_step"), 1);
  model.refuse_if(step != 1, fmt::format("'interleave_moe_layer_step' = {}", step));
  const auto spec = model.attention_spec(ir::RopeMode::kPairs);
  const auto ffn = dense_then_moe_ffn(model, {.share = ir::RoutingNormalization::kChosen});
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, {}, ffn); }));
}

}  // namespace forge::loader
