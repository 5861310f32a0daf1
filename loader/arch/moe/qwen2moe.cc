// qwen2moe: Qwen 1.5's and Qwen 2's mixtures of experts. Qwen 2 with experts, whose weights are a softmax over all of
// them, and beside them a network for all tokens with a gate of its own. Source: arXiv 2407.10671 and the published
// configurations.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_qwen2moe(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(ir::RopeMode::kHalves);
  const auto experts = mixture(model, {}, ir::Activation::kSilu, true);
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, experts);
  }));
}

}  // namespace forge::loader
