// llama: Llama 1 to 3.2, SmolLM, Mistral, Yi and whatever else is published under the name. Pre-norm decoder with RoPE
// on adjacent pairs (GGUF files hold q and k permuted for it), grouped-query attention and SwiGLU.
// Source: arXiv 2302.13971, 2407.21783; tensor names: ggml/docs/gguf.md.

#include <fmt/format.h>

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_llama(const Gguf& file) {
  DecoderBuilder model(file);
  model.refuse_if(file.get<std::int64_t>(model.key("expert_count"), 0) > 0, "mixture-of-experts layers");
  ir::Value x = model.embed();
  for (std::int64_t layer = 0; layer < model.params().layers; ++layer) {
    model.ir().set_layer(static_cast<std::int32_t>(layer));
    const auto stem = fmt::format("blk.{}.", layer);
    x = model.ir().add(x, model.attention(model.norm(x, stem + "attn_norm.weight"), layer, ir::RopeMode::kPairs));
    x = model.ir().add(x, model.gated_ffn(model.norm(x, stem + "ffn_norm.weight"), layer, ir::Activation::kSilu));
  }
  return model.finish(x);
}

}  // namespace forge::loader
