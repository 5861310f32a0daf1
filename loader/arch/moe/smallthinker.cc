// smallthinker: SmallThinker 4B-A0.6B and 21B-A3B. The router of a layer reads the layer's input, before norm and
// attention, so that a device can fetch the experts meanwhile; gated experts with ReLU in every layer; routing weights
// are divided by their sum over the chosen experts. Models with a sliding window repeat four layers: one with full
// attention and no RoPE (NoPE), three with a window and RoPE in kHalves mode; others have full attention and RoPE in
// all layers. Source: arXiv 2507.20984.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_smallthinker(const Gguf& file) {
  DecoderBuilder model(file);
  auto global = model.attention_spec(ir::RopeMode::kHalves);
  auto local = global;
  constexpr std::int64_t kWindow = 4096;  // of all models, whatever the key says
  if (model.sliding_window() > 0) local.window = kWindow;
  global.use_rope = local.window == 0;
  const auto attention = model.alternate(local, global, 4, GlobalLayer::kFirst);
  auto route = read_routing(model);
  route.share = ir::RoutingNormalization::kChosen;
  const ExpertSpec experts{.activation = ir::Activation::kRelu};
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    const auto ffn = [&](ir::Value rows, std::int64_t) { return moe_layer(model, rows, layer, route, experts, x); };
    return model.decoder_layer(x, layer, attention(layer), {}, ffn);
  }));
}

}  // namespace forge::loader
