// deepseek2: DeepSeek V2, V2 Lite, V3, R1 and models of the same architecture. Multi-head latent attention (MLA): keys
// and values of all heads are computed from one latent row a token; besides it, a token has one small key row with
// RoPE, which all heads share. Dense first layers, then mixture of experts with shared experts; V3 has sigmoid routing
// with a bias and group-limited routing. YaRN's factor is on the scores. Sources: arXiv 2405.04434, 2412.19437.
//
//   key of a head:    | nope_dim columns, from the latent | rope_dim columns with RoPE, shared by all heads |
//   value of a head:  | value_dim columns, from the latent |
//
// Files come in two forms:
//   attn_k_b, attn_v_b  One matrix for each head. The graph is the papers' absorbed form: the nope part of q is
//                       multiplied by the transposed key matrix (attn_k_b), so that attention runs on the latents
//                       themselves. The KV cache has one row a token for all heads, [latent | rope part of k]; its
//                       latent part is also the value (shared row).
//   attn_kv_b           One matrix for all heads, whose key part is not transposed as absorbing needs it. The graph
//                       computes keys and values of all heads and caches them.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// Columns of the parts of a head and of the latent rows.
struct LatentDims {
  std::int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;  ///< a key is [nope_dim | rope_dim]
  std::int64_t latent = 0, q_latent = 0;                   ///< q_latent 0: q is projected from the width directly
  [[nodiscard]] std::int64_t key() const { return nope_dim + rope_dim; }
};

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

class LatentAttention {
 public:
  explicit LatentAttention(DecoderBuilder& model)
      : model_(model), ir_(model.ir()), dims_(read_dims(model)), rope_(model.params().rope) {
    scale_ = 1.0F / std::sqrt(static_cast<float>(dims_.key()));
    const auto factor = rope_.freqs.factor;
    if (rope_.freqs.scaling != ir::RopeScaling::kYarn || factor <= 1) return;
    // YaRN's factor on cos and sin would scale only the RoPE parts of q and k. The models scale the whole score
    // instead, with their own multiplier, once for q and once for k.
    rope_.magnitude /= yarn_magnitude(factor);
    const float magnitude = 1.0F + model.feature("rope.scaling.yarn_log_multiplier", 0) * std::log(factor);
    scale_ *= magnitude * magnitude;
  }

  /// Self-attention of one layer on normalised rows, output projection included.
  ir::Value operator()(ir::Value x, std::int64_t layer) {
    const auto& p = model_.params();
    const auto at = [&](const char* stem) { return model_.at(layer, stem); };
    const ir::Value q = queries(x, layer);
    const ir::Value q_rope = rotate(pick({{q, dims_.nope_dim, dims_.key(), dims_.rope_dim}}));
    const std::int64_t total = dims_.latent + dims_.rope_dim;
    const ir::Value latent = norm(model_.linear(x, at("attn_kv_a_mqa"), dims_.latent, p.width, {0, total}),
                                  at("attn_kv_a_norm"), dims_.latent);
    const ir::Value k_rope =
        rotate(model_.linear(x, at("attn_kv_a_mqa"), dims_.rope_dim, p.width, {dims_.latent, total}));
    const Parts parts{q, q_rope, latent, k_rope};
    const ir::Value heads = model_.has(at("attn_k_b.weight")) ? absorbed(parts, layer) : decompressed(parts, layer);
    return model_.linear(heads, at("attn_output"), p.width, p.heads * dims_.value_dim);
  }

 private:
  using Piece = ir::Builder::Piece;
  struct Parts {
    ir::Value q, q_rope, latent, k_rope;
  };

  ir::Value norm(ir::Value x, const std::string& stem, std::int64_t cols) {
    return ir_.rms_norm(x, model_.weight(stem + ".weight", cols), model_.params().norm_eps);
  }
  ir::Value rotate(ir::Value heads) {
    return ir_.rope(heads, model_.rope_table(rope_),
                    {.head_dim = dims_.rope_dim, .rotary_dims = dims_.rope_dim, .mode = ir::RopeMode::kPairs});
  }
  /// arrange over all heads, without pieces of 0 columns.
  ir::Value pick(std::vector<Piece> pieces, bool slots = false) {
    std::erase_if(pieces, [](const Piece& piece) { return piece.width == 0; });
    return ir_.arrange(model_.params().heads, pieces, slots);
  }

  ir::Value queries(ir::Value x, std::int64_t layer) {
    const auto& p = model_.params();
    const std::int64_t n = p.heads * dims_.key(), rank = dims_.q_latent;
    if (rank == 0) return model_.linear(x, model_.at(layer, "attn_q"), n, p.width);
    const ir::Value low = model_.linear(x, model_.at(layer, "attn_q_a"), rank, p.width);
    return model_.linear(norm(low, model_.at(layer, "attn_q_a_norm"), rank), model_.at(layer, "attn_q_b"), n, rank);
  }

  /// Absorbed form: attention on the latents, [T, heads * value_dim]. With K the matrix that computes a head's nope
  /// part of k from a latent, q_nope . (K latent) = (K^T q_nope) . latent. So one product with K^T (attn_k_b) for each
  /// query replaces one with K for each cached position. attn_v_b is applied to the attended latents.
  ir::Value absorbed(const Parts& parts, std::int64_t layer) {
    const std::int64_t heads = model_.params().heads, row = dims_.latent + dims_.rope_dim;
    const auto k_b = model_.weight(model_.at(layer, "attn_k_b.weight"), dims_.latent, dims_.nope_dim, heads);
    const auto v_b = model_.weight(model_.at(layer, "attn_v_b.weight"), dims_.value_dim, dims_.latent, heads);
    const ir::Value to_latent = ir_.batched_matmul(pick({{parts.q, 0, dims_.key(), dims_.nope_dim}}, true), k_b);
    const ir::Value q =
        pick({{to_latent, 0, dims_.latent, dims_.latent}, {parts.q_rope, 0, dims_.rope_dim, dims_.rope_dim}});
    const Piece row_pieces[] = {{parts.latent, 0, 0, dims_.latent}, {parts.k_rope, 0, 0, dims_.rope_dim}};
    const ir::Value mixed = model_.attend(ir_.scale(q, scale_), ir_.arrange(1, row_pieces), {},
                                          {.heads = heads, .kv_heads = 1, .head_dim = row, .value_dim = dims_.latent});
    return ir_.batched_matmul(pick({{mixed, 0, dims_.latent, dims_.latent}}, true), v_b);
  }

  /// Attention on the keys and values of all heads, computed from the latents. [T, heads * value_dim].
  ir::Value decompressed(const Parts& parts, std::int64_t layer) {
    const std::int64_t heads = model_.params().heads, both = dims_.nope_dim + dims_.value_dim;
    const ir::Value kv = model_.linear(parts.latent, model_.at(layer, "attn_kv_b"), heads * both, dims_.latent);
    const ir::Value q =
        pick({{parts.q, 0, dims_.key(), dims_.nope_dim}, {parts.q_rope, 0, dims_.rope_dim, dims_.rope_dim}});
    const ir::Value k = pick({{kv, 0, both, dims_.nope_dim}, {parts.k_rope, 0, 0, dims_.rope_dim}});
    const ir::Value v = pick({{kv, dims_.nope_dim, both, dims_.value_dim}});
    return model_.attend(ir_.scale(q, scale_), k, v,
                         {.heads = heads, .kv_heads = heads, .head_dim = dims_.key(), .value_dim = dims_.value_dim});
  }

  DecoderBuilder& model_;
  ir::Builder& ir_;
  LatentDims dims_;
  RopeSpec rope_;
  float scale_ = 1;
};

}  // namespace

PortableModel build_deepseek2(const Gguf& file) {
  DecoderBuilder model(file);
  LatentAttention attention(model);
  const auto ffn = dense_then_moe_ffn(model, read_routing(model));
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    x = model.residual(x, attention(model.norm(x, model.at(layer, "attn_norm")), layer));
    return model.residual(x, ffn(model.norm(x, model.at(layer, "ffn_norm")), layer));
  }));
}

}  // namespace forge::loader
