#include "loader/arch/latent.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace forge::loader {
namespace {

LatentDims read_dims(const DecoderBuilder& model) {
  const auto& file = model.file();
  const auto of_heads = [&](const char* name) {
    const auto own = model.key(fmt::format("attention.{}_mla", name));
    return positive(file, file.has(own) ? own : model.key(fmt::format("attention.{}", name)));
  };
  LatentDims dims{.rope_dim = model.params().rotary_dims,
                  .value_dim = of_heads("value_length"),
                  .latent = positive(file, model.key("attention.kv_lora_rank"))};
  dims.nope_dim = of_heads("key_length") - dims.rope_dim;
  if (dims.nope_dim < 1)
    contradiction("the RoPE dimensions leave no other columns of a key",
                  fmt::format("{} of {}", dims.rope_dim, dims.key()));
  if (file.get<std::int64_t>(model.key("attention.q_lora_rank"), 0) != 0)
    dims.q_latent = positive(file, model.key("attention.q_lora_rank"));
  return dims;
}

}  // namespace

LatentAttention::LatentAttention(DecoderBuilder& model, const TemperatureSpec& temperature, bool use_rope)
    : model_(model),
      ir_(model.ir()),
      dims_(read_dims(model)),
      rope_(model.params().rope),
      temperature_(temperature),
      use_rope_(use_rope) {
  scale_ = 1.0F / std::sqrt(static_cast<float>(dims_.key()));
  const auto factor = rope_.freqs.factor;
  if (rope_.freqs.scaling != ir::RopeScaling::kYarn || factor <= 1) return;
  // YaRN's factor on cos and sin would scale only the RoPE parts of q and k. The models scale the whole score
  // instead, with their own multiplier, once for q and once for k.
  rope_.magnitude /= yarn_magnitude(factor);
  const float magnitude = 1.0F + model.feature("rope.scaling.yarn_log_multiplier", 0) * std::log(factor);
  scale_ *= magnitude * magnitude;
}

ir::Value LatentAttention::operator()(ir::Value x, std::int64_t layer) {
  const auto& p = model_.params();
  const auto at = [&](const char* stem) { return model_.at(layer, stem); };
  const ir::Value low = query_latent(x, layer), all = queries(low, layer);
  const ir::Value q = temperature_.scale == 0 ? all : model_.scale_by_position(all, dims_.key(), temperature_);
  const ir::Value q_rope = rotate(pick({{q, dims_.nope_dim, dims_.key(), dims_.rope_dim}}));
  const std::int64_t total = dims_.latent + dims_.rope_dim;
  const ir::Value latent = norm(model_.linear(x, at("attn_kv_a_mqa"), dims_.latent, p.width, {0, total}),
                                at("attn_kv_a_norm"), dims_.latent);
  const ir::Value k_rope =
      rotate(model_.linear(x, at("attn_kv_a_mqa"), dims_.rope_dim, p.width, {dims_.latent, total}));
  const Parts parts{q, q_rope, latent, k_rope, select_ ? select_(x, low, layer) : KeySelection{}};
  const ir::Value heads = model_.has(at("attn_k_b.weight")) ? absorbed(parts, layer) : decompressed(parts, layer);
  return model_.linear(heads, at("attn_output"), p.width, p.heads * dims_.value_dim);
}

ir::Value LatentAttention::norm(ir::Value x, const std::string& stem, std::int64_t cols) {
  return ir_.rms_norm(x, model_.weight(stem + ".weight", cols), model_.params().norm_eps);
}

ir::Value LatentAttention::rotate(ir::Value heads) {
  if (!use_rope_) return heads;
  return ir_.rope(heads, model_.rope_table(rope_),
                  {.head_dim = dims_.rope_dim, .rotary_dims = dims_.rope_dim, .mode = ir::RopeMode::kPairs});
}

/// arrange over all heads, without pieces of 0 columns.
ir::Value LatentAttention::pick(std::vector<Piece> pieces, bool slots) {
  std::erase_if(pieces, [](const Piece& piece) { return piece.width == 0; });
  return ir_.arrange(model_.params().heads, pieces, slots);
}

/// The rows that q is projected from: its normalised latent, or x.
ir::Value LatentAttention::query_latent(ir::Value x, std::int64_t layer) {
  if (dims_.q_latent == 0) return x;
  const ir::Value low = model_.linear(x, model_.at(layer, "attn_q_a"), dims_.q_latent, model_.params().width);
  return norm(low, model_.at(layer, "attn_q_a_norm"), dims_.q_latent);
}

ir::Value LatentAttention::queries(ir::Value low, std::int64_t layer) {
  const std::int64_t n = model_.params().heads * dims_.key(), rank = dims_.q_latent;
  return rank == 0 ? model_.linear(low, model_.at(layer, "attn_q"), n, model_.params().width)
                   : model_.linear(low, model_.at(layer, "attn_q_b"), n, rank);
}

void LatentAttention::select_by(SelectKeys select) {
  if (dims_.q_latent == 0)
    contradiction("an indexer has no latent of q to read", model_.key("attention.q_lora_rank") + " is 0 or missing");
  select_ = std::move(select);
}

/// Absorbed form: attention on the latents, [T, heads * value_dim]. With K the matrix that computes a head's nope
/// part of k from a latent, q_nope . (K latent) = (K^T q_nope) . latent. So one product with K^T (attn_k_b) for each
/// query replaces one with K for each cached position. attn_v_b is applied to the attended latents.
ir::Value LatentAttention::absorbed(const Parts& parts, std::int64_t layer) {
  const std::int64_t heads = model_.params().heads, row = dims_.latent + dims_.rope_dim;
  const auto k_b = model_.weight(model_.at(layer, "attn_k_b.weight"), dims_.latent, dims_.nope_dim, heads);
  const auto v_b = model_.weight(model_.at(layer, "attn_v_b.weight"), dims_.value_dim, dims_.latent, heads);
  const ir::Value to_latent = ir_.batched_matmul(pick({{parts.q, 0, dims_.key(), dims_.nope_dim}}, true), k_b);
  const ir::Value q =
      pick({{to_latent, 0, dims_.latent, dims_.latent}, {parts.q_rope, 0, dims_.rope_dim, dims_.rope_dim}});
  const Piece row_pieces[] = {{parts.latent, 0, 0, dims_.latent}, {parts.k_rope, 0, 0, dims_.rope_dim}};
  const ir::Value mixed =
      model_.attend(ir_.scale(q, scale_), ir_.arrange(1, row_pieces), {},
                    {.heads = heads, .kv_heads = 1, .head_dim = row, .value_dim = dims_.latent}, {}, parts.selection);
  return ir_.batched_matmul(pick({{mixed, 0, dims_.latent, dims_.latent}}, true), v_b);
}

/// Attention on the keys and values of all heads, computed from the latents. [T, heads * value_dim].
ir::Value LatentAttention::decompressed(const Parts& parts, std::int64_t layer) {
  const std::int64_t heads = model_.params().heads, both = dims_.nope_dim + dims_.value_dim;
  const ir::Value kv = model_.linear(parts.latent, model_.at(layer, "attn_kv_b"), heads * both, dims_.latent);
  const ir::Value q =
      pick({{parts.q, 0, dims_.key(), dims_.nope_dim}, {parts.q_rope, 0, dims_.rope_dim, dims_.rope_dim}});
  const ir::Value k = pick({{kv, 0, both, dims_.nope_dim}, {parts.k_rope, 0, 0, dims_.rope_dim}});
  const ir::Value v = pick({{kv, dims_.nope_dim, both, dims_.value_dim}});
  return model_.attend(ir_.scale(q, scale_), k, v,
                       {.heads = heads, .kv_heads = heads, .head_dim = dims_.key(), .value_dim = dims_.value_dim}, {},
                       parts.selection);
}

}  // namespace forge::loader
