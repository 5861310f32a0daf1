// bert, jina-bert-v2, nomic-bert, modern-bert: encoders, whose tokens see each other in both directions. LayerNorm.
//   bert         BERT, MiniLM, E5, BGE: norms after attention and FFN, learned positions, token types, biases,
//                an ungated FFN with GELU
//   jina-bert-v2 Jina Embeddings 2: the same norms, ALiBi instead of positions, token types, biases, a gated FFN with
//                GELU, which may have gate and up in one tensor. Its models for code have LayerNorms of whole rows of q
//                and k, and a second norm after attention, of x plus the result of the first
//   nomic-bert   Nomic Embed 1 and 1.5: the same norms, RoPE in kHalves mode, fused q, k and v, a gated FFN with SiLU
//   modern-bert  ModernBERT, Granite Embedding R2: norms before attention and FFN, RoPE in kHalves mode, fused q, k and
//                v, a gated FFN with GELU, a window in all layers but every n-th
// All tokens of a text have token type 0. Sources: arXiv 1810.04805, 2310.19923, 2402.01613, 2412.13663.
//
// Rerankers (pooling_type rank: BGE, MiniLM cross-encoders) read a query and a document as one text. Their head makes a
// score of the first token's row, here of every row: cls.output(tanh(cls(row))), either part of which may be missing.
// llama.cpp, for which the files are made, gives the second text token type 0 as well.

#include <fmt/format.h>

#include "loader/arch/blocks.h"
#include "loader/arch/registry.h"

namespace forge::loader {
namespace {

constexpr std::uint32_t kBertPoolingRank = 4;  // of gguf's constants (PoolingType)
constexpr float kJinaAlibi = 8;                // the models' largest bias, which files do not have

/// [R, width] -> scores [R, 1].
ir::Value rank_head(DecoderBuilder& model, ir::Value rows) {
  auto& ir = model.ir();
  std::int64_t width = model.params().width;
  const auto apply = [&](const std::string& stem) {
    const std::int64_t outputs = model.tensor(stem + ".weight").rows();
    rows = model.linear(rows, stem, outputs, width);
    width = outputs;
  };
  if (model.has("cls.weight")) {
    apply("cls");
    rows = ir.softcap(rows, 1);  // a soft-cap of 1 is tanh
  }
  if (model.has("cls.output.weight")) apply("cls.output");
  model.refuse_if(width != 1, fmt::format("a rank head with {} outputs (a reranker has one score)", width));
  return rows;
}

PortableModel finish_bert(DecoderBuilder& model, ir::Value x, const std::string& norm_stem = {}) {
  ir::Value rows = model.logit_rows(x);
  if (!norm_stem.empty()) rows = model.norm(rows, norm_stem);
  const bool ranks = model.file().get<std::uint32_t>(model.key("pooling_type"), 0) == kBertPoolingRank;
  model.refuse_if(ranks && model.family() != "bert", "pooling type rank");  // another head, or another pooling
  return model.finish_encoder(ranks ? rank_head(model, rows) : rows);
}

ir::Value embed_tokens(DecoderBuilder& model) {
  auto& ir = model.ir();
  const std::int64_t width = model.params().width;
  ir::Value x = model.embed();
  if (model.has("token_types.weight")) {
    const auto types = model.tensor("token_types.weight").rows();
    x = ir.add(x, ir.slice_rows(model.reshaped("token_types.weight", {types * width}), 0, width));
  }
  if (model.has("position_embd.weight")) x = model.add_positions(x);
  return model.norm(x, "token_embd_norm");
}

/// Layers 0, n, 2n, ... see everything and have the file's RoPE base; the others have a window and a base of their own.
AlternatingAttention windows_of(DecoderBuilder& model, const AttentionSpec& spec) {
  const auto layers = static_cast<std::size_t>(model.params().layers);
  AlternatingAttention out{spec, spec, std::vector<bool>(layers)};
  out.local.window = model.sliding_window();
  out.local.rope.freqs.base = model.rope_base("rope.freq_base_swa");
  const auto period = static_cast<std::size_t>(
      positive(model.file(), model.key("attention.sliding_window_pattern"), model.params().layers));
  for (std::size_t i = 0; i < layers; ++i) out.windowed[i] = out.local.window > 0 && i % period != 0;
  return out;
}

/// The FFN is gated if the file has a gate, or an up matrix with both.
ir::Value bert_ffn(DecoderBuilder& model, ir::Value x, std::int64_t layer) {
  const bool fused = model.tensor(model.at(layer, "ffn_up.weight")).rows() == 2 * model.shape(layer).ffn_width;
  if (!fused && !model.has(model.at(layer, "ffn_gate.weight")))
    return model.ungated_ffn(x, layer, ir::Activation::kGelu);
  return model.gated_ffn(x, layer, model.family() == "nomic-bert" ? ir::Activation::kSilu : ir::Activation::kGelu);
}

PortableModel build_modern_bert(DecoderBuilder& model) {
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.bidirectional = true;
  const auto attention = windows_of(model, spec);
  const auto x = model.each_layer(embed_tokens(model), [&](ir::Value in, std::int64_t layer) {
    const auto norm = model.at(layer, "attn_norm");  // the first layer has none: the embedding's norm is just before
    const ir::Value rows = model.has(norm + ".weight") ? model.norm(in, norm) : in;
    in = model.residual(in, model.attention(rows, layer, attention(layer)));
    return model.residual(in,
                          model.gated_ffn(model.norm(in, model.at(layer, "ffn_norm")), layer, ir::Activation::kGelu));
  });
  return finish_bert(model, x, "output_norm");
}

}  // namespace

PortableModel build_bert(const Gguf& file) {
  DecoderBuilder model(file, NormKind::kLayer);
  model.require_bidirectional();
  if (model.family() == "modern-bert") return build_modern_bert(model);
  auto spec = model.attention_spec(ir::RopeMode::kHalves);
  spec.bidirectional = true;
  spec.use_rope = model.family() == "nomic-bert";
  if (model.family() == "jina-bert-v2") spec.alibi = kJinaAlibi;
  return finish_bert(model, model.each_layer(embed_tokens(model), [&](ir::Value x, std::int64_t layer) {
    auto of_layer = spec;
    if (model.has(model.at(layer, "attn_q_norm.weight"))) of_layer.qk_norm = QkNorm::kRow;
    const auto post_norm = [&](ir::Value rows, std::string_view name) {
      return model.norm(model.residual(x, rows), model.at(layer, name));
    };
    ir::Value attended = post_norm(model.attention(x, layer, of_layer), "attn_output_norm");
    if (model.has(model.at(layer, "attn_norm_2.weight"))) attended = post_norm(attended, "attn_norm_2");
    x = attended;
    return post_norm(bert_ffn(model, x, layer), "layer_output_norm");
  }));
}

}  // namespace forge::loader
