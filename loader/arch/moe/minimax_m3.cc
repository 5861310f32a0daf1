// minimax-m3: MiniMax M3. QK-norm over each head, partial RoPE in kHalves mode; dense first layers, then mixture of
// experts with sigmoid routing and a bias; clamped GLU in all FFNs. Behind the dense layers attention is sparse: for
// each KV head an index head chooses blocks of keys. Source: the published configuration.

#include <fmt/format.h>

#include "loader/arch/experts.h"
#include "loader/arch/indexer.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// The blocks of keys that each KV head of a layer attends to. Index heads are normalised and turned as those of the
/// attention are, and share one key. Tensors "blk.N.indexer.<name>": q_proj [kv_heads d, width], k_proj [d, width],
/// q_norm, k_norm [d].
KeySelection choose_blocks(DecoderBuilder& model, ir::Value x, std::int64_t layer, const AttentionSpec& spec) {
  auto& ir = model.ir();
  const std::int64_t heads = model.shape(layer).kv_heads, dim = indexer_param(model, "key_length");
  const ir::SelectKeysAttrs attrs{.heads = heads,
                                  .head_dim = dim,
                                  .top_k = indexer_count(model, "top_k"),
                                  .block = indexer_count(model, "block_size"),
                                  .local = indexer_count(model, "local_blocks")};
  if (attrs.local > attrs.top_k || spec.rope.freqs.dims > dim)
    contradiction("the sizes of the indexer contradict each other",
                  fmt::format("{} local blocks of {}, {} rotary dimensions of {}", attrs.local, attrs.top_k,
                              spec.rope.freqs.dims, dim));
  const auto project = [&](const char* which, std::int64_t count) {
    const auto at = [&](const char* stem) { return model.at(layer, fmt::format("indexer.{}_{}", which, stem)); };
    const ir::Value rows = model.linear(x, at("proj"), count * dim, model.params().width);
    const ir::Value normed = ir.rms_norm(rows, model.weight(at("norm.weight"), dim), model.params().norm_eps);
    return ir.rope(normed, model.rope_table(spec.rope),
                   {.head_dim = dim, .rotary_dims = spec.rope.freqs.dims, .mode = spec.mode});
  };
  const ir::Value q = project("q", heads);
  return model.select_keys(q, project("k", 1), attrs);
}

}  // namespace

PortableModel build_minimax_m3(const Gguf& file) {
  DecoderBuilder model(file);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.qk_norm = QkNorm::kHead;
  const std::int64_t dense = dense_first_layers(model);
  constexpr auto kAct = ir::Activation::kClampedSwish;
  const auto experts = moe_ffn(model, read_routing(model, ir::RoutingNormalization::kChosen), kAct);
  const auto attention = [&](ir::Value x, std::int64_t layer) {
    auto own = spec;
    if (layer >= dense) own.selection = choose_blocks(model, x, layer, spec);
    return model.attention(x, layer, own);
  };
  const auto ffn = [&](ir::Value x, std::int64_t layer) {
    return layer < dense ? model.gated_ffn(x, layer, kAct) : experts(x, layer);
  };
  return model.finish(model.each_layer(
      model.embed(), [&](ir::Value x, std::int64_t layer) { return model.mixer_layer(x, layer, attention, {}, ffn); }));
}

}  // namespace forge::loader
