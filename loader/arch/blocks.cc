#include "loader/arch/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "support/error.h"

namespace forge::loader {
namespace {

constexpr std::int64_t kDimMax = 1 << 24;  // no width, head count or context of a real model is larger

std::string shape_text(std::int64_t rows, std::int64_t cols, std::int64_t experts) {
  if (experts > 0) return fmt::format("[{}, {}, {}]", experts, rows, cols);
  return cols == 0 ? fmt::format("[{}]", rows) : fmt::format("[{}, {}]", rows, cols);
}

[[noreturn]] void contradiction(std::string what, std::string why) {
  throw Error(ErrorCode::kModelFormat, std::move(what), std::move(why),
              "the file is damaged or was converted wrongly: convert or download it again");
}

std::int64_t positive(const Gguf& file, const std::string& key, std::optional<std::int64_t> fallback = {}) {
  const auto value = file.find<std::int64_t>(key);
  const std::int64_t number = value ? *value : fallback ? *fallback : file.require<std::int64_t>(key);
  if (number < 1 || number > kDimMax)
    contradiction("metadata key '" + key + "' is out of range", fmt::format("it holds {}", number));
  return number;
}

/// A count that some files give layer by layer; forge wants one for all.
std::int64_t uniform(const Gguf& file, const std::string& key, std::int64_t layers,
                     std::optional<std::int64_t> fallback = {}) {
  const GgufValue* value = file.find_value(key);
  if (value == nullptr || !value->is_array()) return positive(file, key, fallback);
  const auto list = *file.find_per_layer<std::int64_t>(key, static_cast<std::size_t>(layers));
  for (const auto number : list)
    if (number != list[0])
      throw Error(ErrorCode::kModelUnsupported, "'" + key + "' differs from layer to layer",
                  fmt::format("{} and {}", list[0], number), "layers of one shape are supported");
  if (list[0] < 1 || list[0] > kDimMax)
    contradiction("metadata key '" + key + "' is out of range", fmt::format("it holds {}", list[0]));
  return list[0];
}

}  // namespace

DecoderBuilder::DecoderBuilder(const Gguf& file) : file_(file), ir_(graph_) {
  family_ = file.require<std::string>("general.architecture");
  auto& p = params_;
  p.layers = positive(file, key("block_count"));
  if (p.layers > 4096)
    contradiction("metadata key '" + key("block_count") + "' is out of range", fmt::format("{}", p.layers));
  p.width = positive(file, key("embedding_length"));
  p.ffn_width = uniform(file, key("feed_forward_length"), p.layers);
  p.heads = uniform(file, key("attention.head_count"), p.layers);
  p.kv_heads = uniform(file, key("attention.head_count_kv"), p.layers, p.heads);
  p.context = positive(file, key("context_length"));
  if (p.heads % p.kv_heads != 0)
    contradiction("attention heads do not divide among KV heads", fmt::format("{} and {}", p.heads, p.kv_heads));
  if (!file.has(key("attention.key_length")) && p.width % p.heads != 0)
    contradiction("the width does not divide among heads", fmt::format("{} and {}", p.width, p.heads));
  p.head_dim = positive(file, key("attention.key_length"), p.width / p.heads);
  const auto value_dim = positive(file, key("attention.value_length"), p.head_dim);
  refuse_if(value_dim != p.head_dim,
            fmt::format("value heads of another size ({}) than key heads ({})", value_dim, p.head_dim));
  p.norm_eps = file.require<float>(key("attention.layer_norm_rms_epsilon"));
  if (!(p.norm_eps >= 0 && p.norm_eps < 1))
    contradiction("the norm's epsilon is out of range", fmt::format("{}", p.norm_eps));
  const auto& table = file.tensor("token_embd.weight");
  p.vocab = table.rows();
  if (const auto stated = file.find<std::int64_t>(key("vocab_size")); stated && *stated != p.vocab)
    contradiction("the vocabulary's size is contradicted",
                  fmt::format("'{}' says {}, token_embd.weight has {} rows", key("vocab_size"), *stated, p.vocab));
  read_rope();
}

void DecoderBuilder::read_rope() {
  auto& p = params_;
  p.rotary_dims = positive(file_, key("rope.dimension_count"), p.head_dim);
  if (p.rotary_dims % 2 != 0 || p.rotary_dims > p.head_dim)
    contradiction("the rotary dimensions do not fit the head", fmt::format("{} of {}", p.rotary_dims, p.head_dim));
  auto& rope = p.rope;
  rope.dims = p.rotary_dims;
  rope.base = file_.get<float>(key("rope.freq_base"), 10000.0F);
  if (!(rope.base > 0) || !std::isfinite(rope.base))
    contradiction("the RoPE base is out of range", fmt::format("{}", rope.base));
  rope.original_context = positive(file_, key("rope.scaling.original_context_length"), p.context);
  const auto old_factor = file_.get<float>(key("rope.scale_linear"), 0.0F);
  const auto factor = file_.get<float>(key("rope.scaling.factor"), old_factor);
  const auto type = file_.get<std::string>(key("rope.scaling.type"), factor != 0 ? "linear" : "none");
  if (!(factor >= 0) || !std::isfinite(factor))
    contradiction("the RoPE factor is out of range", fmt::format("{}", factor));
  rope.factor = factor == 0 ? 1.0F : factor;
  if (type == "none") {
    rope.factor = 1;
  } else if (type == "linear") {
    rope.scaling = rope.factor == 1 ? ir::RopeScaling::kNone : ir::RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = ir::RopeScaling::kYarn;
    rope.ext_factor = file_.get<float>(key("rope.scaling.yarn_ext_factor"), 1.0F);
    rope.beta_fast = file_.get<float>(key("rope.scaling.yarn_beta_fast"), 32.0F);
    rope.beta_slow = file_.get<float>(key("rope.scaling.yarn_beta_slow"), 1.0F);
    // YaRN, arXiv 2309.00071, equation 22: sqrt(1/t) = 0.1 ln(s) + 1, on cos and sin alike.
    p.rope_magnitude = file_.get<float>(key("rope.scaling.attn_factor"), 1.0F) *
                       (rope.factor > 1 ? 1.0F + 0.1F * std::log(rope.factor) : 1.0F);
  } else {
    refuse_if(true, fmt::format("RoPE scaling '{}'", printable(type)));
  }
}

std::string DecoderBuilder::key(std::string_view suffix) const {
  return fmt::format("{}.{}", family_, suffix);
}

void DecoderBuilder::refuse_if(bool condition, std::string_view feature) const {
  if (condition)
    throw Error(ErrorCode::kModelUnsupported, fmt::format("a '{}' model with {} is not supported", family_, feature),
                {}, "use a model of the same family without it");
}

ir::Value DecoderBuilder::weight(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t experts) {
  const auto& tensor = file_.tensor(name);
  const bool vector = cols == 0;
  const bool fits =
      vector ? tensor.cols() == rows && tensor.rows() == 1
             : tensor.cols() == cols && tensor.dims[1] == rows && tensor.dims[2] == std::max<std::int64_t>(experts, 1);
  if (!fits || tensor.rank > (experts > 0 ? 3 : 2))
    contradiction("a tensor has the wrong shape",
                  fmt::format("{} where the metadata wants {}", tensor.describe(), shape_text(rows, cols, experts)));
  switch (tensor.dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
      break;
    default:
      throw Error(ErrorCode::kModelUnsupported,
                  fmt::format("tensor type {} is not supported yet", dtype_name(tensor.dtype)), tensor.describe(),
                  "use a file in f32, f16, bf16, q8_0, q4_0 or q4_1");
  }
  if (vector && tensor.dtype != DType::kF32)
    throw Error(ErrorCode::kModelUnsupported, "a vector is not f32", tensor.describe(), "convert the model again");
  if (experts > 0) return ir_.weight(name, tensor.dtype, {experts, rows, cols});
  return ir_.weight(name, tensor.dtype, vector ? ir::Shape{rows} : ir::Shape{rows, cols});
}

ir::Value DecoderBuilder::embed() {
  return ir_.embed(weight("token_embd.weight", params_.vocab, params_.width), ir_.input(ir::InputKind::kIds));
}

ir::Value DecoderBuilder::linear(ir::Value x, const std::string& stem, std::int64_t n, std::int64_t k) {
  ir::Value y = ir_.matmul(x, weight(stem + ".weight", n, k));
  if (has(stem + ".bias")) y = ir_.add(y, weight(stem + ".bias", n));
  return y;
}

ir::Value DecoderBuilder::norm(ir::Value x, const std::string& name) {
  return ir_.rms_norm(x, weight(name, params_.width), params_.norm_eps);
}

ir::Value DecoderBuilder::rope_table() {
  // One table serves all layers once equal nodes are merged, so it belongs to none.
  const std::int32_t layer = ir_.layer();
  ir_.set_layer(ir::kNoLayer);
  const ir::Value factors =
      has("rope_freqs.weight") ? weight("rope_freqs.weight", params_.rotary_dims / 2) : ir::Value{};
  const ir::Value freqs = ir_.rope_freqs(params_.rope, factors);
  const ir::Value table = ir_.rope_table(ir_.input(ir::InputKind::kPositions), freqs, params_.rope_magnitude);
  ir_.set_layer(layer);
  return table;
}

ir::Value DecoderBuilder::attention(ir::Value x, std::int64_t layer, ir::RopeMode mode) {
  const auto& p = params_;
  const auto stem = fmt::format("blk.{}.", layer);
  const std::int64_t q_cols = p.heads * p.head_dim, kv_cols = p.kv_heads * p.head_dim;
  const ir::RopeAttrs rope{.head_dim = p.head_dim, .rotary_dims = p.rotary_dims, .mode = mode};
  const ir::Value table = rope_table();
  // The softmax scale is written as what the paper says, a factor on q; canonicalise moves it into the attention.
  const ir::Value q = ir_.scale(ir_.rope(linear(x, stem + "attn_q", q_cols, p.width), table, rope),
                                1.0F / std::sqrt(static_cast<float>(p.head_dim)));
  const ir::Value k = ir_.rope(linear(x, stem + "attn_k", kv_cols, p.width), table, rope);
  const ir::Value v = linear(x, stem + "attn_v", kv_cols, p.width);
  if (kv_.node == ir::kNoNode)
    kv_ = ir_.kv_state({.group = 0, .layers = p.layers, .kv_heads = p.kv_heads, .head_dim = p.head_dim, .window = 0});
  kv_ = ir_.kv_store(kv_, k, v, layer);
  const ir::Value heads =
      ir_.attention(q, kv_, {.layer = layer, .heads = p.heads, .kv_heads = p.kv_heads, .head_dim = p.head_dim});
  return linear(heads, stem + "attn_output", p.width, q_cols);
}

ir::Value DecoderBuilder::gated_ffn(ir::Value x, std::int64_t layer, ir::Activation activation) {
  const auto& p = params_;
  const auto stem = fmt::format("blk.{}.", layer);
  const ir::Value gate = linear(x, stem + "ffn_gate", p.ffn_width, p.width);
  const ir::Value up = linear(x, stem + "ffn_up", p.ffn_width, p.width);
  return linear(ir_.glu(gate, up, activation), stem + "ffn_down", p.width, p.ffn_width);
}

PortableModel DecoderBuilder::finish(ir::Value x) {
  const auto& p = params_;
  ir_.set_layer(ir::kNoLayer);
  const ir::Value rows = norm(ir_.gather_rows(x, ir_.input(ir::InputKind::kRows)), "output_norm.weight");
  const std::string head = has("output.weight") ? "output.weight" : "token_embd.weight";
  ir::Value logits = ir_.matmul(rows, weight(head, p.vocab, p.width));
  if (has("output.bias")) logits = ir_.add(logits, weight("output.bias", p.vocab));
  graph_.add_output("logits", logits);
  graph_.add_output("kv0", kv_);
  ModelInfo info{.family = family_,
                 .name = file_.get<std::string>("general.name", "unnamed"),
                 .context = p.context,
                 .vocab = p.vocab,
                 .layers = p.layers,
                 .width = p.width,
                 .heads = p.heads,
                 .kv_heads = p.kv_heads,
                 .head_dim = p.head_dim};
  return {std::move(graph_), std::move(info)};
}

}  // namespace forge::loader
