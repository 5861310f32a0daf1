// qwen2: Qwen 1.5, 2 and 2.5. As llama, with RoPE in kHalves mode and bias on q, k and v. exaone (EXAONE 3) and
// pangu-embedded (openPangu Embedded) differ only in which projections have a bias, which the file tells. qwen2vl: the
// text part of Qwen2-VL and 2.5-VL. qwen: Qwen 1, whose files state the width of gate and up together. Sources: arXiv
// 2309.16609, 2407.10671, 2412.15115, 2502.13923.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_qwen2(const Gguf& file) {
  DecoderBuilder model(file);
  if (model.family() == "qwen2vl") (void)model.rope_has_sections();  // accepted: no effect on text
  const auto spec = model.attention_spec(ir::RopeMode::kHalves);
  const auto half_ffn = [&](ir::Value x, std::int64_t layer) {
    const std::int64_t both = model.shape(layer).ffn_width;
    if (both % 2 != 0) contradiction("the width of gate and up together is odd", std::to_string(both));
    return model.gated_ffn(x, layer, ir::Activation::kSilu, {}, both / 2);
  };
  const DecoderBuilder::Ffn ffn = model.family() == "qwen" ? DecoderBuilder::Ffn(half_ffn) : DecoderBuilder::Ffn{};
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, {}, ffn); }));
}

}  // namespace forge::loader
