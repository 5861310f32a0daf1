// nemotron and arcee: decoders whose FFN is ungated with squared ReLU. nemotron: Minitron and Nemotron 3 and 4;
// LayerNorm, whose weights in files already contain the 1 that the model adds; RoPE in kHalves mode on a part of each
// head. arcee: AFM 4.5B; RMSNorm and RoPE in kPairs mode. Sources: arXiv 2402.16819, 2407.14679 and the published
// configurations.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_nemotron(const Gguf& file) {
  const bool arcee = file.require<std::string>("general.architecture") == "arcee";
  DecoderBuilder model(file, arcee ? NormKind::kRms : NormKind::kLayer);
  const auto spec = model.attention_spec(arcee ? ir::RopeMode::kPairs : ir::RopeMode::kHalves);
  const auto ffn = [&](ir::Value x, std::int64_t layer) {
    return model.ungated_ffn(x, layer, ir::Activation::kReluSquared);
  };
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, {}, ffn); }));
}

}  // namespace forge::loader
