// gemma3: the text models of Gemma 3. As Gemma 2 without soft-caps and with QK-norm. Six layers repeat: five with a
// sliding window and a small RoPE base, then one with full attention and the file's RoPE base and scaling. Without a
// window (Rnj-1) all layers are of the latter kind. gemma-embedding: EmbeddingGemma, an encoder of such layers, whose
// windows reach to both sides. Sources: arXiv 2503.19786, 2509.20354.

#include <cmath>

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_gemma3(const Gguf& file) {
  DecoderBuilder model(file);
  const auto& p = model.params();
  auto global = model.attention_spec(ir::RopeMode::kHalves);
  constexpr std::int64_t kLayersOf27B = 62;
  if (p.layers == kLayersOf27B) global.scale = model.width_scale();
  global.qk_norm = QkNorm::kHead;
  global.bidirectional = model.family() == "gemma-embedding";
  if (global.bidirectional) model.require_bidirectional();
  global.softcap = model.feature("attn_logit_softcapping", 0);
  auto local = global;
  local.window = model.sliding_window();
  // Early files have the RoPE bases under other keys.
  const auto base = [&](const char* old_name, const char* name) {
    return model.rope_base(file.has(model.key(old_name)) && !file.has(model.key(name)) ? old_name : name);
  };
  global.rope.freqs.base = base("rope.global.freq_base", "rope.freq_base");
  local.rope = {.freqs = {.dims = p.rotary_dims, .base = base("rope.local.freq_base", "rope.freq_base_swa")}};
  const auto attention = model.alternate(local, global, 6);
  const LayerSpec parts{.activation = ir::Activation::kGelu, .post_norm = true};
  const float scale = std::sqrt(static_cast<float>(p.width));
  const auto x = model.each_layer(model.embed(scale), [&](ir::Value in, std::int64_t layer) {
    return model.decoder_layer(in, layer, attention(layer), parts);
  });
  if (global.bidirectional) return model.finish_encoder(model.norm(model.logit_rows(x), "output_norm"));
  return model.finish(x, 1, model.feature("final_logit_softcapping", 0));
}

}  // namespace forge::loader
