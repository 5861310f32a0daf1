// gemma4: Gemma 4. As Gemma 3, with layers of two kinds that differ in more than the window: windowed (local) layers
// have heads, KV heads and RoPE of their own, full (global) ones rotate a part of a head only, by the file's RoPE
// factors. The softmax scale is 1; values have an RMSNorm without weight, and may be the key projection. The last
// layers read the KV cache of the last windowed or full layer before them. E2B and E4B have per-layer inputs;
// 26B-A4B has a mixture of experts beside each layer's dense FFN. Sources: arXiv 2503.19786 (Gemma 3) and the
// model's code.

#include <fmt/format.h>

#include <cmath>

#include "loader/arch/experts.h"
#include "loader/arch/per_layer_input.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

AlternatingAttention layers_of(DecoderBuilder& model) {
  const auto& file = model.file();
  auto global = model.attention_spec(ir::RopeMode::kHalves);
  global.scale = 1;
  global.qk_norm = QkNorm::kHead;
  global.value_norm = true;
  auto local = global;
  global.keys_as_values = true;
  local.window = model.sliding_window();
  local.head_dim = positive(file, model.key("attention.key_length_swa"), global.head_dim);
  const auto values = positive(file, model.key("attention.value_length_swa"), local.head_dim);
  model.refuse_if(values != local.head_dim,
                  fmt::format("value heads of {} columns and key heads of {}", values, local.head_dim));
  const auto turned = model.rotary_dims("rope.dimension_count_swa", local.head_dim, local.head_dim);
  local.rope = {.freqs = {.dims = turned, .base = model.rope_base("rope.freq_base_swa")}};
  return model.alternate(local, global, 6);
}

/// The first layer without keys and values of its own: all layers from it on read those of the last windowed or the
/// last full layer before it.
std::int64_t first_sharing_layer(const DecoderBuilder& model) {
  const auto layers = model.params().layers;
  const auto sharing = model.file().get<std::int64_t>(model.key("attention.shared_kv_layers"), 0);
  if (sharing < 0 || sharing > layers)
    contradiction("the number of layers that share a KV cache is out of range",
                  fmt::format("{} of {}", sharing, layers));
  return layers - sharing;
}

/// The experts of a layer, on the residual stream x. The router has a norm of its own: x / rms(x) / sqrt(width), times
/// ffn_gate_inp.scale [width].
ir::Value experts_of(DecoderBuilder& model, ir::Value x, std::int64_t layer, const ExpertParams& experts) {
  const auto& p = model.params();
  const auto scale = model.weight(model.at(layer, "ffn_gate_inp.scale"), p.width);
  (void)model.tensor(model.at(layer, "ffn_down_exps.scale"));  // required; routed_experts() uses it
  // Not model.linear(): its `.scale` would be a factor on the product.
  const auto logits = model.ir().matmul(model.ir().rms_norm(x, scale, p.norm_eps),
                                        model.weight(model.at(layer, "ffn_gate_inp.weight"), experts.count, p.width));
  return routed_experts(model, model.norm(x, model.at(layer, "pre_ffw_norm_2")),
                        model.ir().scale(logits, 1 / std::sqrt(static_cast<float>(p.width))), layer,
                        {.share = ir::RoutingNormalization::kChosen}, {.activation = ir::Activation::kGelu});
}

}  // namespace

PortableModel build_gemma4(const Gguf& file) {
  DecoderBuilder model(file);
  const auto& p = model.params();
  auto& ir = model.ir();
  const auto attention = layers_of(model);
  const auto sharing = first_sharing_layer(model);
  const auto experts = expert_params(model);
  const auto embedding = model.embed(std::sqrt(static_cast<float>(p.width)));
  const auto inputs = per_layer_inputs(model, embedding);
  const auto x = model.each_layer(embedding, [&](ir::Value x, std::int64_t layer) {
    const auto at = [&](const char* stem) { return model.at(layer, stem); };
    auto spec = attention(layer);
    if (layer >= sharing) spec.kv_layer = sharing - (spec.window > 0 ? 2 : 1);
    const auto attended = model.attention(model.norm(x, at("attn_norm")), layer, spec);
    x = ir.add(x, model.norm(attended, at("post_attention_norm")));
    auto ffn = model.gated_ffn(model.norm(x, at("ffn_norm")), layer, ir::Activation::kGelu);
    if (experts.count > 0)
      ffn = ir.add(model.norm(ffn, at("post_ffw_norm_1")),
                   model.norm(experts_of(model, x, layer, experts), at("post_ffw_norm_2")));
    x = ir.add(x, model.norm(ffn, at("post_ffw_norm")));
    if (!inputs.empty()) x = ir.add(x, per_layer_block(model, x, inputs[static_cast<std::size_t>(layer)], layer));
    const auto scale = at("layer_output_scale.weight");
    return model.has(scale) ? ir.mul(x, model.weight(scale, 1)) : x;
  });
  return model.finish(x, 1, model.feature("final_logit_softcapping", 0));
}

}  // namespace forge::loader
