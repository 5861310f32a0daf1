// phi3: Phi 3, 3.5 and 4-mini. q, k and v are one tensor, and so are gate and up. RoPE in kHalves mode, with the
// factors of LongRoPE if the file has them, and on a part of each head in Phi-4-mini. Sliding window in all layers.
// Source: arXiv 2404.14219, LongRoPE: arXiv 2402.13753.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_phi3(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.window = model.sliding_window();
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec); }));
}

}  // namespace forge::loader
