// phi3: Phi 3, 3.5 and 4-mini. q, k and v come from one tensor, gate and up from another; RoPE on halves with
// LongRoPE's factors where the file has them, part of a head's dimensions in Phi-4-mini; a sliding window in all
// layers. Source: arXiv 2404.14219, LongRoPE: arXiv 2402.13753.

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
