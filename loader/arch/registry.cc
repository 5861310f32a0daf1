#include "loader/arch/registry.h"

#include <array>

#include "support/error.h"

namespace forge::loader {
namespace {

constexpr std::array kFamilies{
    Family{"command-r", "Command R, R+", "LayerNorm, parallel blocks, norms of q and k, factor on logits",
           build_command_r},
    Family{"deepseek2", "DeepSeek V2, V2 Lite, V2.5, V3, R1, Moonlight, Kimi K2",
           "latent attention, experts in groups, networks for all tokens, leading dense layers, YaRN", build_deepseek2},
    Family{"gemma", "Gemma 1", "GEGLU, factor on embeddings", build_gemma},
    Family{"gemma2", "Gemma 2", "GEGLU, norms behind the blocks too, soft-caps, windows in every other layer",
           build_gemma2},
    Family{"gemma3", "Gemma 3 (text)",
           "GEGLU, norms behind the blocks too, norms of q and k, windows in 5 of 6 layers, two RoPE bases",
           build_gemma3},
    Family{"glm4", "GLM-4-0414", "norms behind the blocks too, partial rotation, bias on q, k and v, fused gate/up",
           build_glm4},
    Family{"gpt-oss", "gpt-oss 20B, 120B",
           "experts with a clamped GLU, attention sinks, windows in every other layer, YaRN, biases", build_gpt_oss},
    Family{"granite", "Granite 3", "factors on embeddings, scores, residuals and logits", build_granite},
    Family{"granitemoe", "Granite 3 MoE", "Granite's factors, experts, a shared network", build_granite},
    Family{"llama", "Llama 1 to 3.3, Mistral, Mixtral, SmolLM 1 and 2, Yi, TinyLlama", "experts (Mixtral)",
           build_llama},
    Family{"olmo2", "OLMo 2", "norms behind the blocks only, norms of q and k over all heads", build_olmo2},
    Family{"olmoe", "OLMoE", "experts, norms of q and k over all heads", build_olmoe},
    Family{"phi3", "Phi 3, 3.5, 4-mini", "fused QKV and gate/up, LongRoPE, partial rotation, sliding window",
           build_phi3},
    Family{"qwen2", "Qwen 1.5, 2, 2.5", "bias on q, k and v", build_qwen2},
    Family{"qwen2moe", "Qwen 1.5 MoE, Qwen 2 MoE", "bias on q, k and v, experts, a shared network with a gate",
           build_qwen2moe},
    Family{"qwen3", "Qwen 3", "norms of q and k", build_qwen3},
    Family{"qwen3moe", "Qwen 3 MoE, Qwen 3 Coder", "norms of q and k, experts", build_qwen3moe},
    Family{"smollm3", "SmolLM 3", "no positions in every fourth layer", build_smollm3},
    Family{"stablelm", "StableLM 3B, Zephyr, StableLM 2",
           "LayerNorm, partial rotation, norms of q and k, parallel blocks", build_stablelm},
    Family{"starcoder2", "StarCoder 2", "LayerNorm, biases, GELU", build_starcoder2},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

PortableModel build_model(const Gguf& file) {
  const auto name = file.require<std::string>("general.architecture");
  std::string known;
  for (const auto& family : kFamilies) {
    if (family.name == name) return family.build(file);
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  throw Error(ErrorCode::kModelUnsupported, "model family '" + printable(name) + "' is not supported", {},
              "supported families: " + known);
}

}  // namespace forge::loader
