// afmoe: Arcee's Trinity models. Embedding scale; sandwich norm; QK-norm for each head; a gate on each column of the
// attended heads; four layers repeat: three with RoPE in kHalves mode and a sliding window, one with full attention and
// no RoPE (NoPE); dense first layers, then experts with sigmoid routing and a bias, and a shared expert.
// Source: the published configurations; the gate: arXiv 2505.06708.

#include <cmath>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_afmoe(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  spec.gate = AttentionGate::kEachColumn;
  auto local = spec;
  local.window = model.sliding_window();
  constexpr std::int64_t kPeriod = 4;
  const auto attention = model.alternate(local, spec, kPeriod);
  const LayerSpec parts{.post_norm = true};
  const auto ffn = dense_then_moe_ffn(model, read_routing(model));
  const float scale = std::sqrt(static_cast<float>(model.params().width));
  return model.finish(model.each_layer(model.embed(scale), [&](ir::Value x, std::int64_t layer) {
    auto of_layer = attention(layer);
    of_layer.use_rope = layer % kPeriod != kPeriod - 1;
    return model.decoder_layer(x, layer, of_layer, parts, ffn);
  }));
}

}  // namespace forge::loader
