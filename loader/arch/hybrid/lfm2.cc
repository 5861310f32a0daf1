// lfm2, lfm2moe: Liquid's LFM2. Short convolutions with two gates in the layers without KV heads, attention with
// QK-norm and RoPE in kHalves mode in the others. The final norm is called token_embd_norm. lfm2moe: dense first
// layers, then mixture of experts. Source: LFM2 technical report, arXiv 2511.23404.

#include "loader/arch/experts.h"
#include "loader/arch/recurrent.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// c * conv(b * u), with b, c and u from one projection.
ir::Value gated_conv(DecoderBuilder& model, ir::Value x, std::int64_t layer, std::int64_t taps) {
  auto& ir = model.ir();
  const std::int64_t width = model.params().width;
  const auto at = [&](const char* stem) { return DecoderBuilder::at(layer, stem); };
  const auto parts = ir.split(model.linear(x, at("shortconv.in_proj"), 3 * width, width), {width, width, width});
  const ir::Value y = short_conv(model, ir.mul(parts[0], parts[2]), at("shortconv.conv"), width, taps);
  return model.linear(ir.mul(parts[1], y), at("shortconv.out_proj"), width, width);
}

}  // namespace

PortableModel build_lfm2(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  const std::int64_t taps = positive(file, model.key("shortconv.l_cache"));
  const auto ffn = expert_params(model).count > 0
                       ? dense_then_moe_ffn(model, read_routing(model, ir::RoutingNormalization::kChosen))
                       : DecoderBuilder::Ffn{};
  const auto mixer = [&](ir::Value rows, std::int64_t layer) {
    return is_recurrent(model, layer) ? gated_conv(model, rows, layer, taps) : model.attention(rows, layer, spec);
  };
  const auto x = model.each_layer(
      model.embed(), [&](ir::Value in, std::int64_t layer) { return model.mixer_layer(in, layer, mixer, {}, ffn); });
  return model.finish(x, 1, 0, "token_embd_norm");
}

}  // namespace forge::loader
