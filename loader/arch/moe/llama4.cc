// llama4: Llama 4 Scout and Maverick. Four layers repeat: three with RoPE in kPairs mode, an unweighted norm over each
// head of q and k after it (not in Maverick), and attention to the token's chunk of the context alone; one with full
// attention and no RoPE (NoPE), where q is scaled by its position. Every interleave_moe_layer_step-th layer has
// experts, of which a token gets the best one; its routing weight, a sigmoid that is not normalised, multiplies the
// expert's input; and a shared expert. Source: The Llama 4 herd (Meta, 2025) and the published configurations.

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

// The same in all models; files have no keys for them.
constexpr std::int64_t kPeriod = 4, kChunk = 8192, kExpertsWithoutQkNorm = 128;
constexpr TemperatureSpec kTemperature{.scale = 0.1F, .length = kChunk, .offset = 1};

}  // namespace

PortableModel build_llama4(const Gguf& file) {
  DecoderBuilder model(file);
  model.refuse_if(model.sliding_window(kChunk) != kChunk, "another 'attention.sliding_window' than 8192");
  auto global = model.attention_spec(ir::RopeMode::kPairs), local = global;
  global.use_rope = false;
  global.temperature = kTemperature;
  local.chunk = kChunk;
  local.norm_after_rope = true;
  if (expert_params(model).count != kExpertsWithoutQkNorm) local.qk_norm = QkNorm::kUnweighted;
  const auto step = file.get<std::int64_t>(model.key("interleave_moe_layer_step"), 1);
  if (step < 1) contradiction("'interleave_moe_layer_step' is out of range", std::to_string(step));
  const ir::RouteAttrs route{.gate = ir::RouteGate::kSigmoid};
  const auto ffn = [&](ir::Value x, std::int64_t layer) {
    return (layer + 1) % step == 0 ? moe_layer(model, x, layer, route, {.weighting = ExpertWeighting::kInput})
                                   : model.gated_ffn(x, layer, ir::Activation::kSilu);
  };
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.decoder_layer(x, layer, (layer + 1) % kPeriod == 0 ? global : local, {}, ffn);
  }));
}

}  // namespace forge::loader
