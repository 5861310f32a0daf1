#include "loader/arch/per_layer_input.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace forge::loader {

std::vector<ir::Value> per_layer_inputs(DecoderBuilder& model, ir::Value embedding) {
  const auto& p = model.params();
  const auto name = model.key("embedding_length_per_layer_input");
  if (model.file().get<std::int64_t>(name, 0) == 0) return {};
  const std::int64_t width = positive(model.file(), name), all = p.layers * width;
  auto& ir = model.ir();
  const auto table = model.weight("per_layer_token_embd.weight", p.vocab, all);
  const auto token = ir.scale(ir.embed(table, ir.input(ir::InputKind::kIds)), std::sqrt(static_cast<float>(width)));
  const auto projected = ir.scale(model.linear(embedding, "per_layer_model_proj", all, p.width),
                                  1 / std::sqrt(static_cast<float>(p.width)));
  const auto normed = ir.rms_norm(projected, model.weight("per_layer_proj_norm.weight", width), p.norm_eps);
  const auto both = ir.scale(ir.add(normed, token), std::numbers::sqrt2_v<float> / 2);
  return ir.split(both, std::vector(static_cast<std::size_t>(p.layers), width));
}

ir::Value per_layer_block(DecoderBuilder& model, ir::Value x, ir::Value own, std::int64_t layer) {
  const std::int64_t width = model.params().width, inner = model.ir().graph().type(own).cols();
  const auto gate = model.linear(x, model.at(layer, "inp_gate"), inner, width);
  const auto product = model.ir().glu(gate, own, ir::Activation::kGelu);
  return model.norm(model.linear(product, model.at(layer, "proj"), width, inner), model.at(layer, "post_norm"));
}

}  // namespace forge::loader
