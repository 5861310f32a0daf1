// qwen2moe: the mixture-of-experts models of Qwen 1.5 and Qwen 2. As qwen2, with experts, whose routing weights are a
// softmax over all experts, and a gated shared expert. Source: arXiv 2407.10671 and the published configurations.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_qwen2moe(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(ir::RopeMode::kHalves);
  const auto experts = moe_ffn(model, {}, ir::Activation::kSilu, true);
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, experts);
  }));
}

}  // namespace forge::loader
