#include "loader/arch/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/quant/rows.h"
#include "support/error.h"

namespace forge::loader {
namespace {

std::string shape_text(std::int64_t rows, std::int64_t cols, std::int64_t experts) {
  if (experts > 0) return fmt::format("[{}, {}, {}]", experts, rows, cols);
  return cols == 0 ? fmt::format("[{}]", rows) : fmt::format("[{}, {}]", rows, cols);
}

/// Names of all weight types that have kernels: "f32, f16, q8_0, ...".
std::string weight_types() {
  std::string names;
  for (const auto& row : kDTypes)
    if (quant::has_kernels(row.type)) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace

std::string DecoderBuilder::key(std::string_view suffix) const {
  return fmt::format("{}.{}", family_, suffix);
}

std::string DecoderBuilder::at(std::int64_t layer, std::string_view stem) {
  return fmt::format("blk.{}.{}", layer, stem);
}

void DecoderBuilder::refuse_if(bool condition, std::string_view feature) const {
  if (condition)
    throw Error(ErrorCode::kModelUnsupported, fmt::format("a '{}' model with {} is not supported", family_, feature),
                {}, "use a model of this family without it");
}

const GgufTensor& DecoderBuilder::tensor(const std::string& name) {
  const auto& found = file_.tensor(name);
  read_.insert(name);
  return found;
}

/// The tensor, after checks of shape and type: cols 0 is a vector [rows], which must be f32; experts > 0 is a tensor
/// [experts, rows, cols]. GGUF dims are innermost first, so dims[0] is cols.
const GgufTensor& DecoderBuilder::checked_tensor(const std::string& name, std::int64_t rows, std::int64_t cols,
                                                 std::int64_t experts) {
  const auto& tensor = this->tensor(name);
  const bool vector = cols == 0;
  const bool fits =
      vector ? tensor.cols() == rows && tensor.rows() == 1
             : tensor.cols() == cols && tensor.dims[1] == rows && tensor.dims[2] == std::max<std::int64_t>(experts, 1);
  if (!fits || tensor.rank > (experts > 0 ? 3 : 2))
    contradiction("a tensor has the wrong shape",
                  fmt::format("{} where the metadata requires {}", tensor.describe(), shape_text(rows, cols, experts)));
  if (!quant::has_kernels(tensor.dtype))
    throw Error(ErrorCode::kModelUnsupported, fmt::format("tensor type {} is not supported", dtype_name(tensor.dtype)),
                tensor.describe(), "use a file in " + weight_types());
  if (vector && tensor.dtype != DType::kF32)
    throw Error(ErrorCode::kModelUnsupported, "a vector is not f32", tensor.describe(), "convert the model again");
  return tensor;
}

ir::Value DecoderBuilder::per_expert_weight(const std::string& name, std::int64_t rows, std::int64_t cols,
                                            std::int64_t experts) {
  const auto mark = name.find(ir::kExpertWildcard);
  const GgufTensor* first = nullptr;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const auto& tensor = checked_tensor(std::string(name).replace(mark, 1, fmt::to_string(expert)), rows, cols, 0);
    if (first == nullptr) first = &tensor;
    refuse_if(tensor.dtype != first->dtype,
              fmt::format("experts of different types ({} and {})", first->describe(), tensor.describe()));
  }
  return ir_.weight(name, first->dtype, {experts, rows, cols});
}

ir::Value DecoderBuilder::weight(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t experts) {
  const auto& tensor = checked_tensor(name, rows, cols, experts);
  const bool vector = cols == 0;
  if (experts > 0) return ir_.weight(name, tensor.dtype, {experts, rows, cols});
  return ir_.weight(name, tensor.dtype, vector ? ir::Shape{rows} : ir::Shape{rows, cols});
}

ir::Value DecoderBuilder::vector(const std::string& name, std::int64_t n) {
  const auto& found = tensor(name);
  if (found.rank > 2 || !((found.cols() == n && found.rows() == 1) || (found.cols() == 1 && found.rows() == n)))
    contradiction("a tensor has the wrong shape",
                  fmt::format("{} where the metadata requires [{}]", found.describe(), n));
  return reshaped(name, {n});
}

ir::Value DecoderBuilder::reshaped(const std::string& name, ir::Shape shape) {
  const auto& found = tensor(name);
  std::int64_t n = 1;
  for (const auto& dim : shape) n *= dim.value;
  if (found.elems() != n)
    contradiction("a tensor has the wrong shape",
                  fmt::format("{} where the metadata requires {} numbers", found.describe(), n));
  if (found.dtype != DType::kF32)
    throw Error(ErrorCode::kModelUnsupported, "a vector is not f32", found.describe(), "convert the model again");
  return ir_.weight(name, DType::kF32, std::move(shape));
}

ir::Value DecoderBuilder::kernel(const std::string& name, std::int64_t channels, std::int64_t taps) {
  const auto& found = tensor(name);
  if (found.cols() != taps || found.rows() != channels || found.dims[found.rank - 1] != channels)
    contradiction("a tensor has the wrong shape",
                  fmt::format("{} where the metadata requires [{}, {}]", found.describe(), channels, taps));
  if (found.dtype != DType::kF32)
    throw Error(ErrorCode::kModelUnsupported, "the kernel of a convolution is not f32", found.describe(),
                "convert the model again");
  return ir_.weight(name, DType::kF32, {channels, taps});
}

ir::Value DecoderBuilder::embed(float scale) {
  const ir::Value rows =
      ir_.embed(weight("token_embd.weight", params_.vocab, params_.width), ir_.input(ir::InputKind::kIds));
  return scale == 1 ? rows : ir_.scale(rows, scale);
}

ir::Value DecoderBuilder::linear(ir::Value x, const std::string& stem, std::int64_t n, std::int64_t k,
                                 SharedRows shared) {
  const auto rows = [&](ir::Value whole) { return shared.total == 0 ? whole : ir_.slice_rows(whole, shared.begin, n); };
  const std::int64_t total = shared.total == 0 ? n : shared.total;
  const ir::Value y = scaled(ir_.matmul(x, rows(weight(stem + ".weight", total, k))), stem);
  return has(stem + ".bias") ? ir_.add(y, rows(weight(stem + ".bias", total))) : y;
}

ir::Value DecoderBuilder::scaled(ir::Value product, const std::string& stem) {
  return has(stem + ".scale") ? ir_.mul(product, weight(stem + ".scale", 1)) : product;
}

ir::Value DecoderBuilder::normalise(ir::Value x, ir::Value weight, ir::Value bias) {
  return norm_kind_ == NormKind::kRms ? ir_.rms_norm(x, weight, params_.norm_eps)
                                      : ir_.layer_norm(x, weight, bias, params_.norm_eps);
}

ir::Value DecoderBuilder::norm(ir::Value x, const std::string& stem) {
  if (norm_kind_ == NormKind::kUnitLayer) return ir_.layer_norm(x, ones(params_.width), {}, params_.norm_eps);
  const ir::Value gain = weight(stem + ".weight", params_.width);
  const ir::Value bias = has(stem + ".bias") ? weight(stem + ".bias", params_.width) : ir::Value{};
  if (norm_kind_ == NormKind::kLayer || bias.node == ir::kNoNode) return normalise(x, gain, bias);
  return ir_.add(normalise(x, gain, {}), bias);
}

ir::Value DecoderBuilder::qk_norm(ir::Value x, const std::string& stem, std::int64_t heads, std::int64_t dim,
                                  QkNorm kind) {
  switch (kind) {
    case QkNorm::kNone:
      return x;
    case QkNorm::kHead:
      return normalise(x, weight(stem + ".weight", dim), {});
    case QkNorm::kEachHead:
      refuse_if(file_.tensor(stem + ".weight").dtype != DType::kF32, "norms of q and k that are not f32");
      if (norm_kind_ == NormKind::kRms) return ir_.mul(unit_norm(x, dim), reshaped(stem + ".weight", {heads * dim}));
      return normalise(x, weight(stem + ".weight", heads, dim), {});
    case QkNorm::kRow: {
      const ir::Value bias = has(stem + ".bias") ? weight(stem + ".bias", heads * dim) : ir::Value{};
      return normalise(x, weight(stem + ".weight", heads * dim), bias);
    }
    case QkNorm::kUnweighted:
      return unit_norm(x, dim);
  }
  return x;
}

ir::Value DecoderBuilder::rope_table(const RopeSpec& rope, const TemperatureSpec& temperature) {
  // Every layer adds its own table; eliminate_common_subexpressions merges equal ones, so they belong to no layer.
  const std::int32_t layer = ir_.layer();
  ir_.set_layer(ir::kNoLayer);
  const std::int64_t pairs = rope.freqs.dims / 2, total = rope.factors_total == 0 ? pairs : rope.factors_total;
  const auto factors = [&](const std::string& name) {
    if (name.empty()) return ir::Value{};
    const ir::Value all = weight(name, total);
    return total == pairs ? all : ir_.slice_rows(all, 0, pairs);
  };
  const ir::Value freqs = ir_.rope_freqs(rope.freqs, factors(rope.factors), factors(rope.long_factors));
  const bool tempered = temperature.scale != 0;
  const ir::Value table = ir_.rope_table(ir_.input(ir::InputKind::kPositions), freqs, rope.magnitude, temperature.scale,
                                         tempered ? temperature.length : 0, tempered ? temperature.offset : 0);
  ir_.set_layer(layer);
  return table;
}

/// RoPE by angles that are 0, whatever the position: its frequencies are divided by so much that cos is 1 and sin
/// vanishes. What remains is the table's temperature.
ir::Value DecoderBuilder::scale_by_position(ir::Value heads, std::int64_t head_dim,
                                            const TemperatureSpec& temperature) {
  refuse_if(head_dim % 2 != 0, fmt::format("an attention temperature and heads of {} columns", head_dim));
  constexpr float kStill = 1e30F;
  const RopeSpec still{.freqs = {.dims = head_dim, .scaling = ir::RopeScaling::kLinear, .factor = kStill}};
  return ir_.rope(heads, rope_table(still, temperature),
                  {.head_dim = head_dim, .rotary_dims = head_dim, .mode = ir::RopeMode::kPairs});
}

AttentionSpec DecoderBuilder::attention_spec(ir::RopeMode mode) const {
  refuse_if(params_.value_dim != params_.head_dim,
            fmt::format("value heads of {} columns and key heads of {}", params_.value_dim, params_.head_dim));
  return {.mode = mode, .head_dim = params_.head_dim, .rope = params_.rope, .scale = params_.attention_scale};
}

float DecoderBuilder::width_scale() const {
  return std::sqrt(static_cast<float>(params_.heads) / static_cast<float>(params_.width));
}

/// The KV group with this geometry, added on first use. The number of its layers is known only when all layers have
/// been built: until then its kv_state has the number of all layers as an upper limit, which finish() replaces.
DecoderBuilder::KvGroup& DecoderBuilder::kv_group(const ir::AttentionAttrs& attention, bool shared_row) {
  ir::KvStateAttrs attrs{.kv_heads = attention.kv_heads,
                         .head_dim = attention.head_dim,
                         .window = attention.window,
                         .value_dim = attention.value_dim,
                         .shared_row = shared_row ? 1 : 0};
  for (auto& group : kv_groups_) {
    attrs.group = group.attrs.group;
    attrs.layers = group.attrs.layers;
    if (attrs == group.attrs) return group;
  }
  attrs.group = static_cast<std::int64_t>(kv_groups_.size());
  attrs.layers = params_.layers;
  const ir::Value state = ir_.kv_state(attrs);
  attrs.layers = 0;
  return kv_groups_.emplace_back(KvGroup{.attrs = attrs, .source = state.node, .state = state});
}

/// As kv_group: the number of layers is an upper limit until finish().
ir::Value DecoderBuilder::update_state(std::int64_t floats, const UpdateState& update) {
  auto group = std::ranges::find(recurrent_groups_, floats, [](const auto& g) { return g.attrs.floats; });
  if (group == recurrent_groups_.end()) {
    ir::RecurrentStateAttrs attrs{
        .group = static_cast<std::int64_t>(recurrent_groups_.size()), .layers = 2 * params_.layers, .floats = floats};
    const ir::Value state = ir_.recurrent_state(attrs);
    attrs.layers = 0;
    group = recurrent_groups_.insert(recurrent_groups_.end(), {.attrs = attrs, .source = state.node, .state = state});
  }
  const auto [y, state] = update(group->state, group->attrs.layers++);
  group->state = state;
  return y;
}

ir::Value DecoderBuilder::attend(ir::Value q, ir::Value k, ir::Value v, ir::AttentionAttrs attrs, ir::Value sinks,
                                 const KeySelection& selection) {
  auto& group = kv_group(attrs, v.node == ir::kNoNode);
  attrs.layer = group.attrs.layers++;
  group.state = ir_.kv_store(group.state, k, v, attrs.layer);
  kv_of_layer_[ir_.layer()] = {.group = static_cast<std::size_t>(&group - kv_groups_.data()), .index = attrs.layer};
  attrs.selected = selection.count;
  attrs.selected_block = selection.block;
  return ir_.attention(q, group.state, attrs, sinks, selection.keys);
}

KeySelection DecoderBuilder::select_keys(ir::Value q, ir::Value k, ir::SelectKeysAttrs attrs, ir::Value weights) {
  auto& group = kv_group({.kv_heads = 1, .head_dim = attrs.head_dim}, /*shared_row=*/true);
  attrs.layer = group.attrs.layers++;
  group.state = ir_.kv_store(group.state, k, {}, attrs.layer);
  return {.keys = ir_.select_keys(q, group.state, attrs, weights), .count = attrs.top_k, .block = attrs.block};
}

ir::Value DecoderBuilder::attend_to(std::int64_t layer, ir::Value q, ir::AttentionAttrs attrs, ir::Value sinks) {
  const auto found = kv_of_layer_.find(static_cast<std::int32_t>(layer));
  if (found == kv_of_layer_.end())
    contradiction("a layer shares the KV cache of a layer that has none",
                  fmt::format("layer {} reads that of layer {}", ir_.layer(), layer));
  const auto& [group, index] = found->second;
  const auto& kv = kv_groups_[group].attrs;
  if (kv.kv_heads != attrs.kv_heads || kv.head_dim != attrs.head_dim || kv.window != attrs.window)
    contradiction(
        "a layer shares the KV cache of a layer with other heads or another window",
        fmt::format("layer {} has {} heads of {} columns and a window of {}, layer {} {} of {} and {}", ir_.layer(),
                    attrs.kv_heads, attrs.head_dim, attrs.window, layer, kv.kv_heads, kv.head_dim, kv.window));
  attrs.layer = index;
  return ir_.attention(q, kv_groups_[group].state, attrs, sinks);
}

ir::Value DecoderBuilder::add_positions(ir::Value x) {
  const auto positions = tensor("position_embd.weight").rows();
  return ir_.add(
      x, ir_.embed(weight("position_embd.weight", positions, params_.width), ir_.input(ir::InputKind::kPositions)));
}

ir::Value DecoderBuilder::ones(std::int64_t dim) {
  return ir_.constant(std::vector<float>(static_cast<std::size_t>(dim), 1.0F), {dim});
}

ir::Value DecoderBuilder::unit_norm(ir::Value x, std::int64_t dim) {
  return ir_.rms_norm(x, ones(dim), params_.norm_eps);
}

ir::Value DecoderBuilder::attention(ir::Value x, std::int64_t layer, const AttentionSpec& spec) {
  const auto& p = params_;
  const auto [heads, kv_heads, ffn_width] = shape(layer);
  if (kv_heads < 1) contradiction("a layer with attention has no heads", fmt::format("layer {}", layer));
  const bool gated_query = spec.gate == AttentionGate::kInQuery;
  const std::int64_t dim = spec.head_dim, q_cols = heads * dim, kv_cols = kv_heads * dim;
  const std::int64_t all = q_cols + 2 * kv_cols;
  const bool fused = has(at(layer, "attn_qkv.weight"));
  const auto project = [&](const char* stem, std::int64_t begin, std::int64_t n) {
    const ir::Value y =
        fused ? linear(x, at(layer, "attn_qkv"), n, p.width, {begin, all}) : linear(x, at(layer, stem), n, p.width);
    return spec.clamp_qkv == 0 ? y : ir_.clamp(y, spec.clamp_qkv);
  };
  const auto place = [&](ir::Value x, const char* stem, std::int64_t n, const TemperatureSpec& temperature) {
    // A rotation of all columns after the norm scales q too, by its table.
    const bool by_table = spec.use_rope && spec.rope.freqs.dims == dim && !spec.norm_after_rope;
    const auto norm = [&](ir::Value rows) { return qk_norm(rows, at(layer, stem), n, dim, spec.qk_norm); };
    const auto rotate = [&](ir::Value rows) {
      const ir::RopeAttrs rope{.head_dim = dim, .rotary_dims = spec.rope.freqs.dims, .mode = spec.mode};
      return spec.use_rope ? ir_.rope(rows, rope_table(spec.rope, by_table ? temperature : TemperatureSpec{}), rope)
                           : rows;
    };
    const ir::Value placed = spec.norm_after_rope ? norm(rotate(x)) : rotate(norm(x));
    return temperature.scale == 0 || by_table ? placed : scale_by_position(placed, dim, temperature);
  };
  // The softmax scale is a scale of q here, as in the papers; the pass canonicalise moves it into the attention.
  const ir::Value query = project("attn_q", 0, gated_query ? 2 * q_cols : q_cols);
  const ir::Builder::Piece query_part[] = {{.x = query, .begin = 0, .stride = 2 * dim, .width = dim}};
  const ir::Value placed =
      place(gated_query ? ir_.arrange(heads, query_part) : query, "attn_q_norm", heads, spec.temperature);
  const ir::Value q = spec.bidirectional ? placed : ir_.scale(placed, spec.scale);
  const ir::AttentionAttrs attrs{.heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = dim,
                                 .window = spec.window,
                                 .softcap = spec.softcap,
                                 .chunk = spec.chunk,
                                 .alibi = spec.alibi};
  const ir::Value sinks = spec.sinks ? weight(at(layer, "attn_sinks.weight"), heads) : ir::Value{};
  ir::Value attended;
  if (spec.bidirectional) {
    attended = ir_.self_attention(q, place(project("attn_k", q_cols, kv_cols), "attn_k_norm", kv_heads, {}),
                                  project("attn_v", q_cols + kv_cols, kv_cols),
                                  {.heads = heads,
                                   .kv_heads = kv_heads,
                                   .head_dim = dim,
                                   .scale = spec.scale,
                                   .window = spec.window,
                                   .alibi = spec.alibi});
  } else if (spec.kv_layer) {
    attended = attend_to(*spec.kv_layer, q, attrs, sinks);
  } else {
    const ir::Value keys = project("attn_k", q_cols, kv_cols);
    const bool own_values = fused || !spec.keys_as_values || has(at(layer, "attn_v.weight"));
    const ir::Value values = own_values ? project("attn_v", q_cols + kv_cols, kv_cols) : keys;
    const ir::Value v = spec.value_norm ? unit_norm(values, dim) : values;
    attended = attend(q, place(keys, "attn_k_norm", kv_heads, {}), v, attrs, sinks, spec.selection);
  }
  const ir::Value mixed = gated(attended, x, query, layer, spec);
  return linear(spec.sub_norm ? normalise(mixed, weight(at(layer, "attn_sub_norm.weight"), q_cols), {}) : mixed,
                at(layer, "attn_output"), p.width, q_cols);
}

/// The attended heads times the sigmoid of their gate. x: the normalised rows; query: the result of attn_q.
ir::Value DecoderBuilder::gated(ir::Value heads, ir::Value x, ir::Value query, std::int64_t layer,
                                const AttentionSpec& spec) {
  const std::int64_t count = shape(layer).heads, dim = spec.head_dim;
  switch (spec.gate) {
    case AttentionGate::kNone:
      return heads;
    case AttentionGate::kEachColumn:
      return ir_.mul(heads, ir_.sigmoid(linear(x, at(layer, "attn_gate"), count * dim, params_.width)));
    case AttentionGate::kEachHead: {
      const ir::Value gate = ir_.sigmoid(linear(x, at(layer, "attn_gate"), count, params_.width));
      return ir_.mul(heads, repeat_columns(gate, count, dim));
    }
    case AttentionGate::kInQuery: {
      const ir::Builder::Piece gate[] = {{.x = query, .begin = dim, .stride = 2 * dim, .width = dim}};
      return ir_.mul(heads, ir_.sigmoid(ir_.arrange(count, gate)));
    }
  }
  return heads;
}

/// In two steps, because an arrange has few pieces: each column becomes a short run, then each run is repeated.
ir::Value DecoderBuilder::repeat_columns(ir::Value x, std::int64_t columns, std::int64_t times) {
  const auto repeat = [&](ir::Value from, std::int64_t width, std::int64_t count) {
    const ir::Builder::Piece piece{.x = from, .begin = 0, .stride = width, .width = width};
    return ir_.arrange(columns, std::vector(static_cast<std::size_t>(count), piece));
  };
  const std::int64_t run = std::gcd(times, std::int64_t{32});
  return repeat(repeat(x, 1, run), run, times / run);
}

ir::Value DecoderBuilder::gated_ffn(ir::Value x, std::int64_t layer, ir::Activation activation,
                                    const elementwise::Parameters& parameters, std::int64_t hidden) {
  const auto& p = params_;
  const std::int64_t n = hidden > 0 ? hidden : shape(layer).ffn_width;
  const bool fused = !has(at(layer, "ffn_gate.weight"));
  const ir::Value gate =
      fused ? linear(x, at(layer, "ffn_up"), n, p.width, {0, 2 * n}) : linear(x, at(layer, "ffn_gate"), n, p.width);
  const ir::Value up = linear(x, at(layer, "ffn_up"), n, p.width, fused ? SharedRows{n, 2 * n} : SharedRows{});
  return linear(ir_.glu(gate, up, activation, parameters), at(layer, "ffn_down"), p.width, n);
}

ir::Value DecoderBuilder::ungated_ffn(ir::Value x, std::int64_t layer, ir::Activation activation,
                                      const elementwise::Parameters& parameters) {
  const auto& p = params_;
  const std::int64_t n = shape(layer).ffn_width;
  const ir::Value up = linear(x, at(layer, "ffn_up"), n, p.width);
  return linear(ir_.activate(up, activation, parameters), at(layer, "ffn_down"), p.width, n);
}

ir::Value DecoderBuilder::residual(ir::Value x, ir::Value y, float scale) {
  return ir_.add(x, scale == 1 ? y : ir_.scale(y, scale));
}

ir::Value DecoderBuilder::decoder_layer(ir::Value x, std::int64_t layer, const AttentionSpec& attention_spec,
                                        const LayerSpec& spec, const Ffn& ffn) {
  const auto attend = [&](ir::Value rows, std::int64_t of) { return attention(rows, of, attention_spec); };
  return mixer_layer(x, layer, attend, spec, ffn);
}

ir::Value DecoderBuilder::mixer_layer(ir::Value x, std::int64_t layer, const Mixer& mixer, const LayerSpec& spec,
                                      const Ffn& ffn) {
  const auto before = [&](ir::Value in, std::string_view stem) {
    return spec.pre_norm ? norm(in, at(layer, stem)) : in;
  };
  const auto after = [&](ir::Value out, const char* stem) { return spec.post_norm ? norm(out, at(layer, stem)) : out; };
  const ir::Value mixed = mixer(before(x, "attn_norm"), layer);
  x = residual(x, after(mixed, "post_attention_norm"), spec.residual_scale);
  const ir::Value rows = before(x, spec.ffn_norm);
  const ir::Value out = ffn ? ffn(rows, layer) : gated_ffn(rows, layer, spec.activation);
  return residual(x, after(out, "post_ffw_norm"), spec.residual_scale);
}

ir::Value DecoderBuilder::logit_rows(ir::Value x) {
  ir_.set_layer(ir::kNoLayer);
  return ir_.gather_rows(x, ir_.input(ir::InputKind::kRows));
}

PortableModel DecoderBuilder::finish(ir::Value x, float scale, float softcap, const std::string& norm_stem) {
  return finish_rows(logit_rows(x), scale, softcap, norm_stem);
}

PortableModel DecoderBuilder::finish_rows(ir::Value rows, float scale, float softcap, const std::string& norm_stem) {
  const auto& p = params_;
  rows = norm(rows, norm_stem);
  const std::string head = has("output.weight") ? "output" : "token_embd";
  ir::Value logits = scaled(ir_.matmul(rows, weight(head + ".weight", p.vocab, p.width)), head);
  if (has("output.bias")) logits = ir_.add(logits, weight("output.bias", p.vocab));
  if (scale != 1) logits = ir_.scale(logits, scale);
  if (softcap > 0) logits = ir_.softcap(logits, softcap);
  graph_.add_output("logits", logits);
  return finished();
}

PortableModel DecoderBuilder::finish_encoder(ir::Value rows) {
  // Projections of the pooled row (sentence-transformers' Dense modules). They have no bias, so the rows may be
  // projected before they are pooled.
  std::int64_t columns = params_.width;
  for (const char* stem : {"dense_2", "dense_3"}) {
    const std::string name = std::string(stem) + ".weight";
    if (!has(name)) continue;
    const std::int64_t wide = tensor(name).rows();
    rows = ir_.matmul(rows, weight(name, wide, columns));
    columns = wide;
  }
  refuse_if(columns != params_.width, fmt::format("embeddings of {} columns and rows of {}", columns, params_.width));
  graph_.add_output(std::string(ir::kHiddenOutput), rows);
  return finished();
}

void DecoderBuilder::require_bidirectional() {
  const auto name = key("attention.causal");
  read_.insert(name);
  refuse_if(file_.get<bool>(name, false), "'" + name + "' = true");
}

/// Completes the states and hands out the graph.
PortableModel DecoderBuilder::finished() {
  const auto& p = params_;
  for (std::size_t g = 0; g < kv_groups_.size(); ++g) {
    graph_.set_attrs(kv_groups_[g].source, kv_groups_[g].attrs);
    graph_.add_output(fmt::format("kv{}", g), kv_groups_[g].state);
  }
  for (std::size_t g = 0; g < recurrent_groups_.size(); ++g) {
    graph_.set_attrs(recurrent_groups_[g].source, recurrent_groups_[g].attrs);
    graph_.add_output(fmt::format("recurrent{}", g), recurrent_groups_[g].state);
  }
  refuse_unread();
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
