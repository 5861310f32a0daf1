// arctic: Snowflake Arctic. As llama, with a dense FFN of the model's width in each layer, and experts beside attention
// and dense FFN: they read the layer's input through a norm of their own, and their result is added at the end. Routing
// weights are a softmax over the chosen experts. Source: the published configuration and model description (Snowflake,
// 2024).

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// The dense FFN. feed_forward_length is the experts' width; this one has the width of the rows.
ir::Value dense_ffn(DecoderBuilder& model, ir::Value x, std::int64_t layer) {
  const std::int64_t width = model.params().width;
  const auto linear = [&](ir::Value rows, const char* stem) {
    return model.linear(rows, model.at(layer, stem), width, width);
  };
  return linear(model.ir().glu(linear(x, "ffn_gate"), linear(x, "ffn_up"), ir::Activation::kSilu), "ffn_down");
}

}  // namespace

PortableModel build_arctic(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(ir::RopeMode::kPairs);
  const ir::RouteAttrs route{.share = ir::RoutingNormalization::kChosen};
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const ir::Value experts = moe_layer(model, model.norm(x, model.at(layer, "ffn_norm_exps")), layer, route);
    x = model.residual(x, model.attention(model.norm(x, model.at(layer, "attn_norm")), layer, spec));
    x = model.residual(x, dense_ffn(model, model.norm(x, model.at(layer, "ffn_norm")), layer));
    return model.residual(x, experts);
  }));
}

}  // namespace forge::loader
