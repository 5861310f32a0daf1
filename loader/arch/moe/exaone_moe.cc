// exaone-moe: K-EXAONE. QK-norm for each head; four layers repeat: three with RoPE in kHalves mode and a sliding
// window, one with full attention and no RoPE (NoPE); dense first layers, then experts with sigmoid routing and a bias,
// and a shared expert. Source: K-EXAONE technical report (LG AI Research, 2026) and the published configuration.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_exaone_moe(const Gguf& file) {
  DecoderBuilder model(file);
  auto global = model.attention_spec(ir::RopeMode::kHalves);
  global.qk_norm = QkNorm::kHead;
  auto local = global;
  local.window = model.sliding_window();
  if (file.has(model.key("rope.freq_base_swa"))) local.rope.freqs.base = model.rope_base("rope.freq_base_swa");
  global.use_rope = local.window == 0;
  const auto attention = model.alternate(local, global, 4);
  const auto ffn = dense_then_moe_ffn(model, read_routing(model));
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, attention(layer), {}, ffn);
  }));
}

}  // namespace forge::loader
