// deepseek2: DeepSeek V2, V2 Lite, V3, R1, and others of their form. Multi-head latent attention: keys and values of
// all heads are made from one latent row a token, and only a rotated part that heads share stands beside it. Some dense
// layers, then experts with networks for all tokens beside them; V3 routes by sigmoids with a bias and limits a token
// to some groups of experts. YaRN, whose factor is on the scores. Sources: arXiv 2405.04434, 2412.19437.
//
// Files come in two forms. With attn_k_b and attn_v_b, one matrix a head each, queries are taken to the latents (the
// papers' absorbed form): the KV cache has one row a token for all heads, the latent and the rotated part as keys, of
// which the latent is the values too. With attn_kv_b the matrix that absorbing needs is there transposed only, so keys
// and values of all heads are made and cached.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "loader/arch/experts.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

/// Columns of a head's parts and of latent rows.
struct LatentDims {
  std::int64_t plain = 0, rotated = 0, value = 0;  ///< a key is plain and rotated columns
  std::int64_t latent = 0, q_latent = 0;           ///< q_latent 0: queries are made from the width
  [[nodiscard]] std::int64_t key() const { return plain + rotated; }
};

LatentDims read_dims(const DecoderBuilder& model) {
  const auto& file = model.file();
  const auto of_heads = [&](const char* name) {
    const auto own = model.key(fmt::format("attention.{}_mla", name));
    return positive(file, file.has(own) ? own : model.key(fmt::format("attention.{}", name)));
  };
  LatentDims dims{.rotated = model.params().rotary_dims,
                  .value = of_heads("value_length"),
                  .latent = positive(file, model.key("attention.kv_lora_rank"))};
  dims.plain = of_heads("key_length") - dims.rotated;
  if (dims.plain < 1)
    contradiction("the rotary dimensions leave nothing of a key", fmt::format("{} of {}", dims.rotated, dims.key()));
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
    // YaRN's factor on q and k would reach their rotated parts alone: scores get it, with a multiplier of their own.
    rope_.magnitude /= yarn_magnitude(factor);
    const float on_both = 1.0F + model.feature("rope.scaling.yarn_log_multiplier", 0) * std::log(factor);
    scale_ *= on_both * on_both;
  }

  /// Self-attention of one layer on normalised rows, output projection included.
  ir::Value operator()(ir::Value x, std::int64_t layer) {
    const auto& p = model_.params();
    const auto at = [&](const char* stem) { return model_.at(layer, stem); };
    const ir::Value q = queries(x, layer);
    const ir::Value q_rotated = rotate(pick({{q, dims_.plain, dims_.key(), dims_.rotated}}));
    const std::int64_t total = dims_.latent + dims_.rotated;
    const ir::Value latent = norm(model_.linear(x, at("attn_kv_a_mqa"), dims_.latent, p.width, {0, total}),
                                  at("attn_kv_a_norm"), dims_.latent);
    const ir::Value k_rotated =
        rotate(model_.linear(x, at("attn_kv_a_mqa"), dims_.rotated, p.width, {dims_.latent, total}));
    const Parts parts{q, q_rotated, latent, k_rotated};
    const ir::Value heads = model_.has(at("attn_k_b.weight")) ? absorbed(parts, layer) : decompressed(parts, layer);
    return model_.linear(heads, at("attn_output"), p.width, p.heads * dims_.value);
  }

 private:
  using Piece = ir::Builder::Piece;
  struct Parts {
    ir::Value q, q_rotated, latent, k_rotated;
  };

  ir::Value norm(ir::Value x, const std::string& stem, std::int64_t cols) {
    return ir_.rms_norm(x, model_.weight(stem + ".weight", cols), model_.params().norm_eps);
  }
  ir::Value rotate(ir::Value heads) {
    return ir_.rope(heads, model_.rope_table(rope_),
                    {.head_dim = dims_.rotated, .rotary_dims = dims_.rotated, .mode = ir::RopeMode::kPairs});
  }
  /// For each head the pieces that have any columns, side by side.
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

  /// Heads [T, heads * value] from a cache of latents.
  ir::Value absorbed(const Parts& parts, std::int64_t layer) {
    const std::int64_t heads = model_.params().heads, row = dims_.latent + dims_.rotated;
    const auto k_b = model_.weight(model_.at(layer, "attn_k_b.weight"), dims_.latent, dims_.plain, heads);
    const auto v_b = model_.weight(model_.at(layer, "attn_v_b.weight"), dims_.value, dims_.latent, heads);
    const ir::Value to_latent = ir_.batched_matmul(pick({{parts.q, 0, dims_.key(), dims_.plain}}, true), k_b);
    const ir::Value q =
        pick({{to_latent, 0, dims_.latent, dims_.latent}, {parts.q_rotated, 0, dims_.rotated, dims_.rotated}});
    const Piece row_pieces[] = {{parts.latent, 0, 0, dims_.latent}, {parts.k_rotated, 0, 0, dims_.rotated}};
    const ir::Value mixed = model_.attend(ir_.scale(q, scale_), ir_.arrange(1, row_pieces), {},
                                          {.heads = heads, .kv_heads = 1, .head_dim = row, .value_dim = dims_.latent});
    return ir_.batched_matmul(pick({{mixed, 0, dims_.latent, dims_.latent}}, true), v_b);
  }

  /// The same from a cache of keys and values of all heads.
  ir::Value decompressed(const Parts& parts, std::int64_t layer) {
    const std::int64_t heads = model_.params().heads, both = dims_.plain + dims_.value;
    const ir::Value kv = model_.linear(parts.latent, model_.at(layer, "attn_kv_b"), heads * both, dims_.latent);
    const ir::Value q =
        pick({{parts.q, 0, dims_.key(), dims_.plain}, {parts.q_rotated, 0, dims_.rotated, dims_.rotated}});
    const ir::Value k = pick({{kv, 0, both, dims_.plain}, {parts.k_rotated, 0, 0, dims_.rotated}});
    const ir::Value v = pick({{kv, dims_.plain, both, dims_.value}});
    return model_.attend(ir_.scale(q, scale_), k, v,
                         {.heads = heads, .kv_heads = heads, .head_dim = dims_.key(), .value_dim = dims_.value});
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
  const auto network = dense_then_mixture(model, routing(model));
  return model.finish(model.each_layer(model.embed(), [&](ir::Value x, std::int64_t layer) {
    x = model.residual(x, attention(model.norm(x, model.at(layer, "attn_norm")), layer));
    return model.residual(x, network(model.norm(x, model.at(layer, "ffn_norm")), layer));
  }));
}

}  // namespace forge::loader
