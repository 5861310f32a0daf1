// llama: Llama 1 to 3.2, SmolLM, Mistral, Mixtral, Yi and whatever else is published under the name. Pre-norm decoder
// with RoPE on adjacent pairs (GGUF files hold q and k permuted for it), grouped-query attention and SwiGLU, alone or
// of the best experts, whose weights are a softmax over the chosen ones. Source: arXiv 2302.13971, 2407.21783,
// 2401.04088; tensor names: ggml/docs/gguf.md.

#include <fmt/format.h>

#include "loader/arch/blocks.h"
#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_llama(const Gguf& file) {
  DecoderBuilder model(file);
  const ExpertParams experts = expert_params(model);
  ir::Value x = model.embed();
  for (std::int64_t layer = 0; layer < model.params().layers; ++layer) {
    model.ir().set_layer(static_cast<std::int32_t>(layer));
    const auto stem = fmt::format("blk.{}.", layer);
    x = model.ir().add(x, model.attention(model.norm(x, stem + "attn_norm.weight"), layer, ir::RopeMode::kPairs));
    const ir::Value rows = model.norm(x, stem + "ffn_norm.weight");
    x = model.ir().add(x, experts.count == 0 ? model.gated_ffn(rows, layer, ir::Activation::kSilu)
                                             : experts_ffn(model, rows, layer, experts,
                                                           {.share = ir::RouteShare::kChosen}, ir::Activation::kSilu));
  }
  return model.finish(x);
}

}  // namespace forge::loader
