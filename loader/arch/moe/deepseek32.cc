// deepseek32: DeepSeek V3.2. DeepSeek V3 with sparse attention: an indexer in each layer chooses the keys that its
// latent attention keeps. glm-dsa: GLM-5, the same with another RoPE mode and epsilon in the indexer, and in later
// versions with layers that use the keys that the layer before chose. Sources: arXiv 2512.02556 and the published
// configurations.

#include "loader/arch/experts.h"
#include "loader/arch/indexer.h"
#include "loader/arch/latent.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_deepseek32(const Gguf& file) {
  DecoderBuilder model(file);
  const bool glm = model.family() == "glm-dsa";
  LatentAttention attention(model);
  LatentIndexer indexer(model, attention.rope(), glm ? ir::RopeMode::kPairs : ir::RopeMode::kHalves, glm ? 0 : 1e-6F);
  attention.select_by(std::ref(indexer));
  const auto ffn = dense_then_moe_ffn(model, read_routing(model));
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    return model.mixer_layer(x, layer, std::ref(attention), {}, ffn);
  }));
}

}  // namespace forge::loader
