// llama: Llama 1 to 3.2, SmolLM, Mistral, Mixtral, Yi and whatever else is published under the name. Pre-norm decoder
// with RoPE on adjacent pairs (GGUF files hold q and k permuted for it), grouped-query attention and SwiGLU, alone or
// of the best experts, whose weights are a softmax over the chosen ones. Source: arXiv 2302.13971, 2407.21783,
// 2401.04088; tensor names: ggml/docs/gguf.md.

#include "loader/arch/blocks.h"
#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_llama(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(ir::RopeMode::kPairs);
  const auto network =
      expert_params(model).count > 0 ? mixture(model, {.share = ir::RouteShare::kChosen}) : DecoderBuilder::Network{};
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {}, network);
  }));
}

}  // namespace forge::loader
