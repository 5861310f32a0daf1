// Networks of a squared ReLU. nemotron: Minitron and Nemotron 3 and 4, LayerNorm (files hold its weights plus one),
// RoPE on halves of a part of each head. arcee: AFM 4.5B, RMSNorm and RoPE on adjacent pairs. Sources: arXiv
// 2402.16819, 2407.14679 and the published configurations.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_nemotron(const Gguf& file) {
  const bool arcee = file.require<std::string>("general.architecture") == "arcee";
  DecoderBuilder model(file, arcee ? NormKind::kRms : NormKind::kLayer);
  const auto spec = model.attention_spec(arcee ? ir::RopeMode::kPairs : ir::RopeMode::kHalves);
  const auto network = [&](ir::Value x, std::int64_t layer) {
    return model.plain_ffn(x, layer, ir::Activation::kReluSquared);
  };
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, network);
  }));
}

}  // namespace forge::loader
