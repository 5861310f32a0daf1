// bitnet: BitNet b1.58. As llama, with RoPE in kHalves mode and two norms more: on the attended heads before the output
// projection, and on the gated columns before the FFN's down projection. Source: arXiv 2402.17764.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

ir::Value ffn(DecoderBuilder& model, ir::Value x, std::int64_t layer) {
  const std::int64_t width = model.params().width, hidden = model.shape(layer).ffn_width;
  const ir::Value gate = model.linear(x, model.at(layer, "ffn_gate"), hidden, width);
  const ir::Value up = model.linear(x, model.at(layer, "ffn_up"), hidden, width);
  const ir::Value gain = model.weight(model.at(layer, "ffn_sub_norm.weight"), hidden);
  const ir::Value rows =
      model.ir().rms_norm(model.ir().glu(gate, up, ir::Activation::kSilu), gain, model.params().norm_eps);
  return model.linear(rows, model.at(layer, "ffn_down"), width, hidden);
}

}  // namespace

PortableModel build_bitnet(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.sub_norm = true;
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, spec, {},
                               [&](ir::Value rows, std::int64_t of) { return ffn(model, rows, of); });
  }));
}

}  // namespace forge::loader
