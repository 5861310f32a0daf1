#include "loader/arch/indexer.h"

#include <fmt/format.h>

#include <cmath>

namespace forge::loader {

std::int64_t indexer_param(const DecoderBuilder& model, std::string_view suffix) {
  return positive(model.file(), model.key(fmt::format("attention.indexer.{}", suffix)));
}

std::int64_t indexer_count(const DecoderBuilder& model, std::string_view suffix) {
  constexpr std::int64_t kMost = 1 << 20;
  const auto count = indexer_param(model, suffix);
  if (count > kMost) contradiction("a number of an indexer is out of range", fmt::format("{} = {}", suffix, count));
  return count;
}

LatentIndexer::LatentIndexer(DecoderBuilder& model, RopeSpec rope, ir::RopeMode mode, float norm_eps)
    : model_(model),
      rope_(std::move(rope)),
      mode_(mode),
      norm_eps_(norm_eps),
      heads_(indexer_param(model, "head_count")),
      dim_(indexer_param(model, "key_length")),
      top_k_(indexer_count(model, "top_k")),
      types_(model.per_layer("attention.indexer.types", 1)) {
  if (rope_.freqs.dims > dim_)
    contradiction("the RoPE dimensions exceed the index heads", fmt::format("{} of {}", rope_.freqs.dims, dim_));
}

KeySelection LatentIndexer::operator()(ir::Value x, ir::Value q_latent, std::int64_t layer) {
  if (types_[static_cast<std::size_t>(layer)] == 0) {
    if (last_.keys.node == ir::kNoNode)
      contradiction("a layer shares the keys that no layer before it chose", fmt::format("layer {}", layer));
    return last_;
  }
  auto& ir = model_.ir();
  const auto at = [&](const char* stem) { return model_.at(layer, fmt::format("indexer.{}", stem)); };
  const auto rotate = [&](ir::Value rows) {
    return ir.rope(rows, model_.rope_table(rope_), {.head_dim = dim_, .rotary_dims = rope_.freqs.dims, .mode = mode_});
  };
  const std::int64_t width = model_.params().width, latent = ir.graph().type(q_latent).cols();
  const ir::Value q = rotate(model_.linear(q_latent, at("attn_q_b"), heads_ * dim_, latent));
  const ir::Value k =
      rotate(ir.layer_norm(model_.linear(x, at("attn_k"), dim_, width), model_.weight(at("k_norm.weight"), dim_),
                           model_.weight(at("k_norm.bias"), dim_), norm_eps_));
  const float scale = 1.0F / std::sqrt(static_cast<float>(heads_ * dim_));
  const ir::Value weights = ir.scale(model_.linear(x, at("proj"), heads_, width), scale);
  return last_ = model_.select_keys(q, k, {.heads = heads_, .head_dim = dim_, .top_k = top_k_}, weights);
}

}  // namespace forge::loader
