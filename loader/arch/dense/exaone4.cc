// exaone4: EXAONE 4.0. Post-norm only: the outputs of attention and FFN are normalised, not their inputs. QK-norm for
// each head, then RoPE in kHalves mode. Models with a sliding window repeat four layers: three with the window, and one
// with full attention and no RoPE (NoPE). Without a window all layers have RoPE. Source: arXiv 2507.11407.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_exaone4(const Gguf& file) {
  DecoderBuilder model(file);
  auto global = model.attention_spec(ir::RopeMode::kHalves);
  global.qk_norm = QkNorm::kHead;
  auto local = global;
  local.window = model.sliding_window();
  global.use_rope = local.window == 0;
  const auto attention = model.alternate(local, global, 4);
  const LayerSpec parts{.pre_norm = false, .post_norm = true};
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, attention(layer), parts);
  }));
}

}  // namespace forge::loader
