// seed_oss: Seed-OSS. As qwen2, but head_dim is larger than width / heads, and the tensor of the FFN's pre-norm is
// called post_attention_norm. Source: model card and configuration of ByteDance-Seed/Seed-OSS-36B-Instruct.

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {

PortableModel build_seed_oss(const Gguf& file) {
  DecoderBuilder model(file);
  const auto spec = model.attention_spec(ir::RopeMode::kHalves);
  const LayerSpec parts{.ffn_norm = "post_attention_norm"};
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.decoder_layer(x, layer, spec, parts); }));
}

}  // namespace forge::loader
