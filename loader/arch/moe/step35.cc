// step35: Step 3.5 Flash. QK-norm for each head; a gate on each attended head; layers with a sliding window and layers
// with full attention, which differ in heads and RoPE (kHalves mode in both); limits on the factors of SwiGLU, for each
// layer and differently for experts and for shared experts and dense FFNs; dense layers, then experts with sigmoid
// routing and a bias, and a shared expert. Source: arXiv 2602.10604.

#include <fmt/format.h>

#include <algorithm>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// SwiGLU's limit in each layer; 0: none.
std::vector<float> read_limits(const DecoderBuilder& model, std::string_view suffix) {
  const auto name = model.key(suffix);
  const auto layers = static_cast<std::size_t>(model.params().layers);
  auto limits = model.file().find_per_layer<float>(name, layers).value_or(std::vector<float>(layers));
  for (const auto limit : limits)
    if (!(limit >= 0 && limit < 1e9F))
      contradiction("metadata key '" + name + "' is out of range", fmt::format("it holds {}", limit));
  return limits;
}

struct Glu {
  ir::Activation activation = ir::Activation::kSilu;
  elementwise::Parameters parameters{};
};
Glu limited(float limit) {
  return limit == 0 ? Glu{} : Glu{.activation = ir::Activation::kLimitedSilu, .parameters = {limit}};
}

/// Layers with full attention rotate half of the dimensions that the file names and scale their frequencies; layers
/// with a window rotate others, unscaled.
AlternatingAttention read_attention(DecoderBuilder& model) {
  const auto& file = model.file();
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  spec.gate = AttentionGate::kEachHead;
  auto local = spec;
  local.window = model.sliding_window();
  const auto dims = model.rotary_dims("rope.dimension_count_swa", spec.rope.freqs.dims, spec.head_dim);
  const bool own_base = file.has(model.key("rope.freq_base_swa"));
  local.rope = {.freqs = {.dims = dims, .base = model.rope_base(own_base ? "rope.freq_base_swa" : "rope.freq_base")}};
  auto& freqs = spec.rope.freqs;
  if (freqs.dims % 4 != 0) contradiction("half of the rotary dimensions are no pairs", fmt::format("{}", freqs.dims));
  freqs.dims /= 2;
  if (!spec.rope.factors.empty()) spec.rope.factors_total = file.tensor(spec.rope.factors).cols();
  return model.alternate(local, spec, 4, GlobalLayer::kFirst);
}

}  // namespace

PortableModel build_step35(const Gguf& file) {
  DecoderBuilder model(file);
  const auto attention = read_attention(model);
  const auto of_experts = read_limits(model, "swiglu_clamp_exp"), of_shared = read_limits(model, "swiglu_clamp_shexp");
  const auto route = read_routing(model);
  const auto ffn = [&](ir::Value x, std::int64_t layer) {
    const auto routed = limited(of_experts[static_cast<std::size_t>(layer)]);
    const auto shared = limited(of_shared[static_cast<std::size_t>(layer)]);
    if (!model.has(model.at(layer, "ffn_gate_inp.weight")))
      return model.gated_ffn(x, layer, shared.activation, shared.parameters);
    return moe_layer(model, x, layer, route,
                     {.activation = routed.activation,
                      .parameters = routed.parameters,
                      .shared_activation = shared.activation,
                      .shared_parameters = shared.parameters});
  };
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, attention(layer), {}, ffn);
  }));
}

}  // namespace forge::loader
