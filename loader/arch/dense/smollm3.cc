// smollm3: SmolLM 3. As llama, but every fourth layer has no RoPE (NoPE).
// Source: huggingface.co/blog/smollm3; layers without RoPE: arXiv 2501.18795.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_smollm3(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kPairs);
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    spec.use_rope = (layer + 1) % 4 != 0;
    return model.decoder_layer(x, layer, spec);
  }));
}

}  // namespace forge::loader
