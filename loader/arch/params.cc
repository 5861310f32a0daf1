// Reads a decoder's hyper-parameters from "<family>.<key>" metadata, each checked against its limits, and refuses files
// with features that the family's graph does not implement.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "loader/arch/blocks.h"
#include "support/error.h"

namespace forge::loader {
namespace {

using namespace std::string_view_literals;

// Limits on hostile or damaged metadata, beyond any real model.
constexpr std::int64_t kDimMax = 1 << 24;  // widths and contexts
constexpr std::int64_t kHeadsMax = 1 << 16;
constexpr std::int64_t kLayersMax = 1024;               // some passes take quadratic time in the number of layers
constexpr float kFactorMin = 1e-9F, kFactorMax = 1e9F;  // products and reciprocals of a few factors stay finite

}  // namespace

void contradiction(std::string what, std::string why) {
  throw Error(ErrorCode::kModelFormat, std::move(what), std::move(why),
              "the file is damaged or was converted wrongly: convert or download it again");
}

float yarn_magnitude(float factor, float multiplier) {
  return 1.0F + 0.1F * multiplier * std::log(factor);
}

std::int64_t positive(const Gguf& file, const std::string& key, std::optional<std::int64_t> fallback) {
  const auto value = file.find<std::int64_t>(key);
  const std::int64_t number = value ? *value : fallback ? *fallback : file.require<std::int64_t>(key);
  if (number < 1 || number > kDimMax)
    contradiction("metadata key '" + key + "' is out of range", fmt::format("it holds {}", number));
  return number;
}

DecoderBuilder::DecoderBuilder(const Gguf& file, NormKind norm) : file_(file), norm_kind_(norm), ir_(graph_) {
  family_ = file.require<std::string>("general.architecture");
  auto& p = params_;
  file_layers_ = positive(file, key("block_count"));
  if (file_layers_ > kLayersMax)
    contradiction("metadata key '" + key("block_count") + "' is out of range", fmt::format("{}", file_layers_));
  const auto mtp_layers = file.get<std::int64_t>(key("nextn_predict_layers"), 0);
  if (mtp_layers < 0 || mtp_layers >= file_layers_)
    contradiction("metadata key '" + key("nextn_predict_layers") + "' is out of range", fmt::format("{}", mtp_layers));
  p.layers = file_layers_ - mtp_layers;
  p.width = positive(file, key("embedding_length"));
  read_shapes();
  p.context = positive(file, key("context_length"));
  if (!file.has(key("attention.key_length")) && p.heads > 0 && p.width % p.heads != 0)
    contradiction("the width is not a multiple of the heads", fmt::format("{} and {}", p.width, p.heads));
  p.head_dim = positive(file, key("attention.key_length"), p.heads > 0 ? p.width / p.heads : 1);
  p.value_dim = positive(file, key("attention.value_length"), p.head_dim);
  p.norm_eps = file.require<float>(
      key(norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"));
  if (!(p.norm_eps >= 0 && p.norm_eps < 1))
    contradiction("the norm's epsilon is out of range", fmt::format("{}", p.norm_eps));
  const float scale = feature("attention.scale", 0);
  p.attention_scale = scale > 0 ? scale : 1.0F / std::sqrt(static_cast<float>(p.head_dim));
  const auto& table = file.tensor("token_embd.weight");
  p.vocab = table.rows();
  if (const auto stated = file.find<std::int64_t>(key("vocab_size")); stated && *stated != p.vocab)
    contradiction("the vocabulary size contradicts the embedding table",
                  fmt::format("'{}' says {}, token_embd.weight has {} rows", key("vocab_size"), *stated, p.vocab));
  read_rope();
}

/// Heads and widths of all layers, those of multi-token prediction included. A model without any attention
/// (attention.head_count 0) and layers without an FFN are possible; families that need them find tensors missing.
void DecoderBuilder::read_shapes() {
  auto& p = params_;
  const auto heads = per_layer("attention.head_count"), widths = per_layer("feed_forward_length", 0);
  const bool own_kv = file_.has(key("attention.head_count_kv"));
  const auto kv_heads = own_kv ? per_layer("attention.head_count_kv") : heads;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const LayerShape shape{.heads = heads[i], .kv_heads = kv_heads[i], .ffn_width = widths[i]};
    if (std::max(shape.heads, shape.kv_heads) > kHeadsMax || shape.heads < shape.kv_heads)
      contradiction("the number of attention heads is out of range",
                    fmt::format("{} and {} in layer {}", shape.heads, shape.kv_heads, i));
    if (shape.kv_heads > 0 && shape.heads % shape.kv_heads != 0)
      contradiction("the number of heads is not a multiple of the KV heads",
                    fmt::format("{} and {}", shape.heads, shape.kv_heads));
    shapes_.push_back(shape);
    p.heads = std::max(p.heads, shape.heads);
    p.kv_heads = std::max(p.kv_heads, shape.kv_heads);
    p.ffn_width = std::max(p.ffn_width, shape.ffn_width);
  }
}

std::vector<std::int64_t> DecoderBuilder::per_layer(std::string_view suffix,
                                                    std::optional<std::int64_t> fallback) const {
  const auto name = key(suffix);
  const auto layers = static_cast<std::size_t>(file_layers_);
  if (!file_.has(name) && fallback) return std::vector<std::int64_t>(layers, *fallback);
  if (!file_.has(name)) (void)file_.require<std::int64_t>(name);  // throws: the key is missing
  auto list = *file_.find_per_layer<std::int64_t>(name, layers);
  for (const auto number : list)
    if (number < 0 || number > kDimMax)
      contradiction("metadata key '" + name + "' is out of range", fmt::format("it holds {}", number));
  list.resize(layers);
  return list;
}

float DecoderBuilder::rope_base(std::string_view suffix) const {
  const auto base = file_.get<float>(key(suffix), 10000.0F);
  if (!(base > 0) || !std::isfinite(base)) contradiction("the RoPE base is out of range", fmt::format("{}", base));
  return base;
}

std::int64_t DecoderBuilder::rotary_dims(std::string_view suffix, std::int64_t fallback, std::int64_t head_dim) const {
  const auto dims = positive(file_, key(suffix), fallback);
  if (dims % 2 != 0 || dims > head_dim)
    contradiction("the rotary dimensions do not fit the head", fmt::format("{} of {}", dims, head_dim));
  return dims;
}

/// RoPE's dimensions, base and context extension. Old converters wrote the factor as rope.scale_linear, without a type.
void DecoderBuilder::read_rope() {
  auto& p = params_;
  if (p.heads == 0) return;  // no layer has attention
  p.rotary_dims = rotary_dims("rope.dimension_count", p.head_dim, p.head_dim);
  auto& rope = p.rope.freqs;
  rope.dims = p.rotary_dims;
  rope.base = rope_base("rope.freq_base");
  rope.original_context = positive(file_, key("rope.scaling.original_context_length"), p.context);
  const auto old_factor = file_.get<float>(key("rope.scale_linear"), 0.0F);
  const auto factor = file_.get<float>(key("rope.scaling.factor"), old_factor);
  const auto type = file_.get<std::string>(key("rope.scaling.type"), factor != 0 ? "linear" : "none");
  if (!(factor >= 0) || !std::isfinite(factor))
    contradiction("the RoPE factor is out of range", fmt::format("{}", factor));
  rope.factor = factor == 0 ? 1.0F : factor;
  if (type.empty() || type == "none" || type == "longrope") {  // LongRoPE is in its tensors of factors
    rope.factor = 1;
  } else if (type == "linear") {
    rope.scaling = rope.factor == 1 ? ir::RopeScaling::kNone : ir::RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = ir::RopeScaling::kYarn;
    rope.ext_factor = feature("rope.scaling.yarn_ext_factor", 1);
    // Ollama's converter writes these keys without "yarn_".
    rope.beta_fast = feature("rope.scaling.yarn_beta_fast", feature("rope.scaling.beta_fast", 32));
    rope.beta_slow = feature("rope.scaling.yarn_beta_slow", feature("rope.scaling.beta_slow", 1));
    if (rope.beta_fast == 0 || rope.beta_slow == 0)
      contradiction("YaRN's betas are out of range", fmt::format("{} and {}", rope.beta_fast, rope.beta_slow));
    if (rope.factor > 1) p.rope.magnitude = yarn_magnitude(rope.factor);
  } else {
    refuse_if(true, fmt::format("RoPE scaling '{}'", printable(type)));
  }
  p.rope.magnitude *= file_.get<float>(key("rope.scaling.attn_factor"), 1.0F);
  if (!(p.rope.magnitude > 0) || !std::isfinite(p.rope.magnitude))
    contradiction("the RoPE attention factor is out of range", fmt::format("{}", p.rope.magnitude));
  if (has("rope_freqs.weight")) {
    p.rope.factors = "rope_freqs.weight";
  } else if (has("rope_factors_short.weight")) {
    p.rope.factors = "rope_factors_short.weight";
    p.rope.long_factors = "rope_factors_long.weight";
  }
}

float DecoderBuilder::feature(std::string_view suffix, float neutral) {
  const auto name = key(suffix);
  read_.insert(name);
  const auto value = file_.get<float>(name, neutral);
  if (value != 0 && !(value >= kFactorMin && value <= kFactorMax))
    contradiction("metadata key '" + name + "' is out of range", fmt::format("it holds {}", value));
  return value;
}

std::int64_t DecoderBuilder::sliding_window(std::int64_t fallback) {
  const auto name = key("attention.sliding_window");
  read_.insert(name);
  const auto window = file_.get<std::int64_t>(name, fallback);
  if (window < 0 || window > kDimMax)
    contradiction("metadata key '" + name + "' is out of range", fmt::format("it holds {}", window));
  return window;
}

bool DecoderBuilder::rope_has_sections() {
  const auto name = key("rope.dimension_sections");
  read_.insert(name);
  const GgufValue* value = file_.find_value(name);
  if (value == nullptr || value->count == 0) return false;
  const auto sections = *file_.find_per_layer<std::int64_t>(name, value->count);
  return std::ranges::any_of(sections, [](auto dims) { return dims != 0; });
}

AlternatingAttention DecoderBuilder::alternate(AttentionSpec local, AttentionSpec global, std::int64_t period,
                                               GlobalLayer place) const {
  const auto layers = static_cast<std::size_t>(params_.layers);
  AlternatingAttention attention{std::move(local), std::move(global), std::vector<bool>(layers)};
  if (attention.local.window == 0) return attention;
  const auto name = key("attention.sliding_window_pattern");
  const GgufValue* value = file_.find_value(name);
  if (value != nullptr && value->is_array()) {
    attention.windowed = *file_.find_per_layer<bool>(name, layers);
    return attention;
  }
  if (value != nullptr) period = positive(file_, name);
  const std::int64_t global_at = place == GlobalLayer::kFirst ? 0 : period - 1;
  for (std::int64_t i = 0; i < params_.layers; ++i)
    attention.windowed[static_cast<std::size_t>(i)] = i % period != global_at;
  return attention;
}

/// Refuses a file with metadata or tensors that change results but were not read by the family's build function. A
/// factor of 0 (or 1, for a scale) has no effect and is accepted.
void DecoderBuilder::refuse_unread() {
  constexpr std::array kFeatures{"attention.sliding_window"sv,
                                 "attn_logit_softcapping"sv,
                                 "final_logit_softcapping"sv,
                                 "logit_scale"sv,
                                 "residual_scale"sv,
                                 "embedding_scale"sv,
                                 "attention.clamp_kqv"sv,
                                 "attention.max_alibi_bias"sv,
                                 "attention.temperature_scale"sv,
                                 "expert_weights_scale"sv};
  for (const auto suffix : kFeatures) {
    const auto name = key(suffix);
    const GgufValue* value = file_.find_value(name);
    if (value == nullptr || read_.contains(name)) continue;
    const auto number = value->to_f64();
    const bool scale = suffix.ends_with("_scale") && suffix != "attention.temperature_scale";
    refuse_if(!number || (*number != 0 && !(scale && *number == 1)),
              fmt::format("'{}' = {}", printable(name), printable(value->describe(), 40)));
  }
  const auto sections = key("rope.dimension_sections");
  refuse_if(!read_.contains(sections) && rope_has_sections(), "'" + sections + "'");
  const auto causal = key("attention.causal");
  refuse_if(!read_.contains(causal) && !file_.get<bool>(causal, true), "'" + causal + "' = false");
  const auto is_mtp_layer = [&](std::string_view name) {
    for (std::int64_t layer = params_.layers; layer < file_layers_; ++layer)
      if (name.starts_with(fmt::format("blk.{}.", layer))) return true;
    return false;
  };
  // Accepted although unread: the image encoder ("v.", "mm."), which text does not use; RoPE tables that old converters
  // wrote and that forge computes from metadata; the scales of 4-bit activations in NVFP4 files, which forge has in
  // int8.
  const auto is_accepted = [](std::string_view name) {
    return name.starts_with("v.") || name.starts_with("mm.") || name.ends_with("attn_rot_embd.weight") ||
           name.ends_with("rotary_emb.inv_freq") || name.ends_with(".input_scale");
  };
  for (const auto& tensor : file_.tensors())
    refuse_if(!read_.contains(tensor.name) && !is_mtp_layer(tensor.name) && !is_accepted(tensor.name),
              "tensor " + tensor.describe() + ", which the family's graph does not use,");
}

}  // namespace forge::loader
