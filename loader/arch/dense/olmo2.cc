// olmo2: OLMo 2 and 3. Post-norm only: the outputs of attention and FFN are normalised, not their inputs. QK-norm over
// all heads together; RoPE in kHalves mode. OLMo 3 repeats four layers: three with a sliding window and unscaled RoPE
// frequencies, then one with full attention. Source: arXiv 2501.00656 and the published configurations of OLMo 3.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_olmo2(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kRow;
  auto local = spec;
  local.window = model.sliding_window();
  const auto& freqs = model.params().rope.freqs;
  local.rope = {.freqs = {.dims = freqs.dims, .base = freqs.base}};
  const auto attention = model.alternate(local, spec, 4);
  const LayerSpec parts{.pre_norm = false, .post_norm = true};
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, attention(layer), parts);
  }));
}

}  // namespace forge::loader
