// exaone4: EXAONE 4.0. Norms stand behind attention and the network, not in front of them; an RMSNorm of each head of q
// and k, RoPE on halves behind it. With a sliding window three of four layers have it, and the fourth sees everything
// and knows no positions; without one all layers rotate. Source: arXiv 2507.11407.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_exaone4(const Gguf& file) {
  DecoderBuilder model(file);
  auto all = model.attention_spec(ir::RopeMode::kHalves);
  all.qk_norm = QkNorm::kHead;
  auto local = all;
  local.window = model.sliding_window();
  all.rotates = local.window == 0;
  const auto attention = model.alternate(local, all, 4);
  const LayerSpec parts{.norms_before = false, .norms_after = true};
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, attention(layer), parts);
  }));
}

}  // namespace forge::loader
